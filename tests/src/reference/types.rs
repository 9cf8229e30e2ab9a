//! The types of a configuration as serde reads them: keys, whether they must be there, words.

use indexmap::IndexMap;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, Fields, GenericArgument, Ident, Item, Lit, Meta, MetaNameValue, PathArguments,
    Token,
};

/// Types by name.
#[derive(Debug, Default)]
pub(super) struct Types(IndexMap<String, Shape>);

/// A type: a table of keys, or a choice of words.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) doc: String,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Table(Vec<Key>),
    Words(Vec<String>),
    /// One of several shapes that are told apart by what they look like.
    Untagged,
}

/// A key of a table.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) doc: String,
    pub(super) value: Value,
    pub(super) is_required: bool,
}

/// What a key's value is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Value {
    /// A type by its name.
    Named(String),
    List(Box<Self>),
    /// A table whose keys are the user's.
    Map(Box<Self>),
}

impl Types {
    /// Takes in what a source declares; what another declared before stays.
    pub(super) fn add(&mut self, file: &syn::File) {
        for item in &file.items {
            let found = match item {
                Item::Struct(item) if is_plain(&item.attrs) => {
                    table(item).map(|shape| (item.ident.to_string(), shape))
                }
                Item::Enum(item) if is_plain(&item.attrs) => {
                    Some((item.ident.to_string(), words_of_enum(item)))
                }
                Item::Macro(item) if is_words(&item.mac) => {
                    let words = item.mac.parse_body::<Words>().ok();
                    words.map(|words| (words.name.to_string(), words.shape))
                }
                _ => None,
            };
            if let Some((name, shape)) = found {
                self.0.entry(name).or_insert(shape);
            }
        }
    }

    pub(super) fn of(&self, name: &str) -> Option<&Shape> {
        self.0.get(name)
    }
}

fn is_words(item: &syn::Macro) -> bool {
    item.path.segments.last().is_some_and(|last| last.ident == "words")
}

/// True for types whose form serde derives, for reading or for writing. What others look like their
/// own code says.
fn is_plain(attributes: &[Attribute]) -> bool {
    let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    let paths = derives.filter_map(|attribute| {
        attribute.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated).ok()
    });
    paths.flatten().any(|path| path.is_ident("Deserialize") || path.is_ident("Serialize"))
}

fn table(item: &syn::ItemStruct) -> Option<Shape> {
    let Fields::Named(fields) = &item.fields else { return None };
    let has_default = serde_words(&item.attrs).any(|(word, _)| word == "default");
    let keys = fields.named.iter().map(|field| {
        let mut name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut is_required = !has_default;
        for (word, value) in serde_words(&field.attrs) {
            match (word.as_str(), value) {
                ("rename", Some(value)) => name = value,
                ("default", _) => is_required = false,
                _ => {}
            }
        }
        let (value, is_optional) = value_of(&field.ty);
        let is_required = is_required && !is_optional;
        Key { name, doc: doc_of(&field.attrs), value, is_required }
    });
    Some(Shape { doc: doc_of(&item.attrs), kind: Kind::Table(keys.collect()) })
}

fn words_of_enum(item: &syn::ItemEnum) -> Shape {
    let doc = doc_of(&item.attrs);
    let mut case = String::new();
    for (word, value) in serde_words(&item.attrs) {
        match (word.as_str(), value) {
            ("rename_all", Some(value)) => case = value,
            ("untagged", _) => return Shape { doc, kind: Kind::Untagged },
            _ => {}
        }
    }
    let words = item.variants.iter().map(|variant| {
        let renamed = serde_words(&variant.attrs)
            .find_map(|(word, value)| value.filter(|_| word == "rename"));
        renamed.unwrap_or_else(|| in_case(&variant.ident.to_string(), &case))
    });
    Shape { doc, kind: Kind::Words(words.collect()) }
}

fn in_case(name: &str, case: &str) -> String {
    let separator = match case {
        "snake_case" => "_",
        "kebab-case" => "-",
        _ => "",
    };
    let mut text = String::new();
    for (index, letter) in name.chars().enumerate() {
        if index > 0 && letter.is_uppercase() {
            text.push_str(separator);
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// The value's kind, and whether it may be missing.
fn value_of(ty: &syn::Type) -> (Value, bool) {
    match ty {
        syn::Type::Array(array) => (Value::List(Box::new(value_of(&array.elem).0)), false),
        syn::Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return named("value") };
            let mut inner = inner_types(&last.arguments);
            match (last.ident.to_string().as_str(), inner.pop()) {
                ("Option", Some(inner)) => (inner, true),
                ("Vec", Some(inner)) => (Value::List(Box::new(inner)), false),
                ("BTreeMap" | "IndexMap", Some(inner)) => (Value::Map(Box::new(inner)), false),
                (name, _) => named(name),
            }
        }
        _ => named("value"),
    }
}

/// The types between angle brackets.
fn inner_types(arguments: &PathArguments) -> Vec<Value> {
    let PathArguments::AngleBracketed(arguments) = arguments else { return Vec::new() };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(value_of(ty).0),
        _ => None,
    });
    types.collect()
}

fn named(name: &str) -> (Value, bool) {
    (Value::Named(name.to_owned()), false)
}

/// The words of all `#[serde(…)]`, with their values.
fn serde_words(attributes: &[Attribute]) -> impl Iterator<Item = (String, Option<String>)> {
    let metas = attributes.iter().filter(|attribute| attribute.path().is_ident("serde"));
    let metas = metas.filter_map(|attribute| {
        attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()
    });
    metas.flatten().filter_map(|meta| {
        let word = meta.path().get_ident()?.to_string();
        let value = match &meta {
            Meta::NameValue(pair) => text_of(&pair.value),
            _ => None,
        };
        Some((word, value))
    })
}

fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The documentation comment, its lines joined, without the brackets of links.
fn doc_of(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => text_of(&pair.value),
        _ => None,
    });
    let text: Vec<_> = lines.map(|line| line.trim().to_owned()).collect();
    text.join("\n").replace("[`", "`").replace("`]", "`")
}

/// `words!(Name, "what", { Variant = "word", … })`
struct Words {
    name: Ident,
    shape: Shape,
}

impl Parse for Words {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name: Ident = input.parse()?;
        input.parse::<Token![,]>()?;
        input.parse::<Lit>()?;
        input.parse::<Token![,]>()?;
        let body;
        syn::braced!(body in input);
        let pairs = Punctuated::<MetaNameValue, Token![,]>::parse_terminated(&body)?;
        let words = pairs.iter().filter_map(|pair| text_of(&pair.value)).collect();
        // What cannot be chosen.
        input.parse::<proc_macro2::TokenStream>()?;
        Ok(Self { name, shape: Shape { doc: String::new(), kind: Kind::Words(words) } })
    }
}
