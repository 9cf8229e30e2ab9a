//! A loaded program: names have become indices, so that no frame looks up a string.

use std::collections::BTreeMap;

use crate::fault::Place;
use crate::value::Value;

/// A program without its state.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) headers: Vec<Header>,
    pub(crate) fields: Vec<Field>,
    pub(crate) parser: Parser,
    pub(crate) ingress: Pipeline,
    pub(crate) egress: Pipeline,
    pub(crate) tables: Vec<Table>,
    pub(crate) actions: Vec<Action>,
    pub(crate) deparser: Vec<HeaderId>,
    pub(crate) verified: Vec<Checksum>,
    pub(crate) updated: Vec<Checksum>,
    pub(crate) calculations: Vec<Calculation>,
    pub(crate) registers: Vec<ArrayInfo>,
    pub(crate) counters: Vec<ArrayInfo>,
    pub(crate) meters: Vec<ArrayInfo>,
    pub(crate) standard: Standard,
    pub(crate) errors: BTreeMap<String, i128>,
}

pub(crate) type HeaderId = usize;
pub(crate) type FieldId = usize;
pub(crate) type ActionId = usize;
pub(crate) type TableId = usize;

/// A header instance; its fields are those of `Program::fields` from `first` on.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) first: FieldId,
    pub(crate) count: usize,
    pub(crate) len_bytes: usize,
    pub(crate) is_metadata: bool,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) header: HeaderId,
    pub(crate) width: usize,
    pub(crate) is_signed: bool,
    /// Bits of its header before it.
    pub(crate) skip: usize,
}

/// The fields of v1model's standard metadata that the switch itself reads and writes.
#[derive(Debug)]
pub(crate) struct Standard {
    pub(crate) ingress_port: FieldId,
    pub(crate) egress_spec: FieldId,
    pub(crate) egress_port: FieldId,
    pub(crate) instance_type: FieldId,
    pub(crate) packet_length: FieldId,
    pub(crate) mcast_grp: FieldId,
    pub(crate) egress_rid: FieldId,
    pub(crate) checksum_error: Option<FieldId>,
    pub(crate) parser_error: Option<FieldId>,
}

#[derive(Debug)]
pub(crate) enum Expr {
    Const(Value),
    Field(FieldId),
    Valid(HeaderId),
    Param(usize),
    Register(usize, Box<Self>),
    Binary(Binary, Box<Self>, Box<Self>),
    Not(Box<Self>),
    FromBool(Box<Cond>),
    Choose(Box<Cond>, Box<Self>, Box<Self>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    /// In two's complement of that many bits.
    CutSigned,
}

#[derive(Debug)]
pub(crate) enum Cond {
    Const(bool),
    IsValid(HeaderId),
    Compare(Compare, Expr, Expr),
    Same(bool, Box<Self>, Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    FromData(Expr),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Compare {
    Equal,
    Unequal,
    Greater,
    Less,
    AtLeast,
    AtMost,
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) primitives: Vec<Primitive>,
}

#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) width: usize,
}

#[derive(Debug)]
pub(crate) struct Primitive {
    pub(crate) op: Op,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) enum Op {
    Assign(FieldId, Expr),
    AssignHeader(HeaderId, HeaderId),
    AddHeader(HeaderId),
    RemoveHeader(HeaderId),
    RegisterRead(FieldId, usize, Expr),
    RegisterWrite(usize, Expr, Expr),
    Count(usize, Expr),
    Meter(usize, Expr, FieldId),
    /// Target, base, calculation, and one more than the greatest hash.
    Hash(FieldId, Expr, usize, Expr),
    Drop,
    Truncate(Expr),
    Jump(Expr),
    JumpIfZero(Expr, Expr),
    Assert(Expr),
    Exit,
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Parser {
    pub(crate) states: Vec<State>,
    pub(crate) first: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) place: Place,
    pub(crate) ops: Vec<ParserOp>,
    pub(crate) key: Vec<KeyPart>,
    pub(crate) cases: Vec<Case>,
    pub(crate) default: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum ParserOp {
    Extract(HeaderId),
    Set(FieldId, Expr),
    /// Bits ahead, and how many.
    SetAhead(FieldId, usize, usize),
    Advance(Expr),
    Verify(Cond, Expr),
    Assign(FieldId, Expr),
}

#[derive(Debug)]
pub(crate) enum KeyPart {
    Field(FieldId),
    Ahead { skip: usize, width: usize },
}

/// A way out of a parser state; key and values have every part padded to bytes.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) value: Vec<u8>,
    pub(crate) mask: Option<Vec<u8>>,
    pub(crate) next: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) first: Option<Node>,
    pub(crate) conditionals: Vec<Conditional>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Table(TableId),
    Conditional(usize),
}

#[derive(Debug)]
pub(crate) struct Conditional {
    pub(crate) place: Place,
    pub(crate) cond: Cond,
    pub(crate) if_true: Option<Node>,
    pub(crate) if_false: Option<Node>,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) place: Place,
    pub(crate) key: Vec<TableKey>,
    pub(crate) size: usize,
    pub(crate) actions: Vec<ActionId>,
    /// What a miss does.
    pub(crate) default: (ActionId, Vec<Value>),
    pub(crate) next: Next,
}

#[derive(Debug)]
pub(crate) enum Next {
    ByAction(Vec<(ActionId, Option<Node>)>),
    ByHit { hit: Option<Node>, miss: Option<Node> },
}

#[derive(Debug)]
pub(crate) struct TableKey {
    pub(crate) name: String,
    pub(crate) source: KeySource,
    pub(crate) width: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum KeySource {
    Field(FieldId),
    Valid(HeaderId),
}

#[derive(Debug)]
pub(crate) struct Checksum {
    pub(crate) target: FieldId,
    pub(crate) calculation: usize,
    pub(crate) cond: Option<Cond>,
    pub(crate) place: Place,
}

/// A one's complement sum over these parts, one behind the other.
#[derive(Debug)]
pub(crate) struct Calculation {
    pub(crate) parts: Vec<Part>,
    pub(crate) has_payload: bool,
}

#[derive(Debug)]
pub(crate) enum Part {
    Field(FieldId),
    Header(HeaderId),
    Const(Value, usize),
}

#[derive(Debug)]
pub(crate) struct ArrayInfo {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) width: usize,
}
