//! Kinds of frames and their fields, as a script spells them.

use std::str::FromStr;

use weft_wire::Members;
use weft_wire::header::{ElementType, Flags, Kind, Operation, Outcome};
use weft_wire::hello::{Phase, Reason};

use super::lex::{Read, Words, number};
use super::parse::Parser;
use super::script::{Checksum, CookieOf, Fields, Generation, PeerId, Source, Word};

/// What a frame may be: `HAVE`, or `WAITING|WELCOME`.
pub(super) fn kinds(words: &mut Words<'_>) -> Read<Vec<Word>> {
    let all = words.next("a kind of frame")?;
    all.split('|').map(|word| kind(words, word)).collect()
}

/// A kind of frame. A STATE is named by its outcome, a handshake by its phase.
pub(super) fn kind(words: &Words<'_>, word: &str) -> Read<Word> {
    let states = [("HAVE", Outcome::Have), ("STALE", Outcome::Stale), ("WAIT", Outcome::Wait)];
    if let Some((_, outcome)) = states.into_iter().find(|(name, _)| *name == word) {
        return Ok(Word::Data(Kind::State, outcome));
    }
    let phase = Phase::ALL.iter().find(|(_, name)| *name == word);
    if let Some((phase, _)) = phase {
        return Ok(Word::Hello(*phase));
    }
    let kind = Kind::ALL.iter().find(|(_, name)| *name == word);
    match kind {
        Some((kind, _)) => Ok(Word::Data(*kind, Outcome::None)),
        None => Err(words.bad_last(format!("{word} is no kind of frame"))),
    }
}

impl Parser {
    /// The fields that follow, for a frame from or to `peer`.
    pub(super) fn fields(&self, words: &mut Words<'_>, peer: PeerId) -> Read<Fields> {
        let mut fields = Fields::default();
        while let Some(name) = words.peek() {
            words.next("a field")?;
            self.field(&mut fields, name, words, peer)?;
        }
        Ok(fields)
    }

    fn field(
        &self,
        fields: &mut Fields,
        name: &str,
        words: &mut Words<'_>,
        peer: PeerId,
    ) -> Read<()> {
        match name {
            "chunk" => fields.chunk = Some(words.number("chunk")?),
            "members" => fields.members = Some(members(words)?),
            "values" if words.peek() == Some("balancing") => {
                words.next("balancing")?;
                fields.balances = true;
            }
            "values" => {
                let values: Vec<i32> = words.numbers("value")?;
                if values.is_empty() {
                    return Err(words.bad("a value is missing"));
                }
                fields.values = Some(values);
            }
            "flags" => fields.flags = flags(words)?,
            "outcome" => {
                let outcome = words.next("an outcome")?;
                let all = Outcome::ALL.iter().find(|(_, name)| *name == outcome);
                let found = all.map(|(outcome, _)| *outcome as u8);
                fields.outcome =
                    Some(found.ok_or_else(|| words.bad_last(format!("{outcome} is no outcome")))?);
            }
            "cookie" => fields.cookie = Some(self.cookie(words, peer)?),
            "job" => fields.job = Some(words.number("job")?),
            "row" => fields.row = Some(words.number("row")?),
            "generation" => {
                fields.generation = Some(match words.peek() {
                    Some("other") => Generation::Other,
                    Some("old") => Generation::Old,
                    _ => Generation::Number(words.number("generation")?),
                });
                if !matches!(fields.generation, Some(Generation::Number(_))) {
                    words.next("a generation")?;
                }
            }
            "type" => fields.element_type = Some(word(words, ElementType::None, "element type")?),
            "operation" => fields.operation = Some(word(words, Operation::None, "operation")?),
            "exponent" => fields.exponent = Some(words.number("exponent")?),
            "count" => fields.count = Some(words.number("count")?),
            "version" => fields.version = Some(words.number("version")?),
            "kind" => fields.kind = Some(words.number("kind")?),
            "type_op" => fields.type_op = Some(words.number("type_op")?),
            "from" => fields.source = Some(self.source(words)?),
            "port" => fields.udp_port = Some(words.number("port")?),
            "checksum" => fields.checksum = checksum(words)?,
            "truncate" => fields.truncate = Some(words.number("length")?),
            "cut" => fields.cut = Some(words.number("length")?),
            "padded" => fields.padded = true,
            "congestion" => fields.congestion = true,
            "life" => fields.life = Some(words.number("life")?),
            "session" => fields.session = Some(words.number("session")?),
            "token" => fields.token = Some(words.number("token")?),
            "reason" => {
                let reason = words.next("a reason")?;
                let found = Reason::ALL.iter().find(|(_, name)| *name == reason);
                let found = found.map(|(reason, _)| *reason as u8);
                fields.reason =
                    Some(found.ok_or_else(|| words.bad_last(format!("{reason} is no reason")))?);
            }
            "holding" => fields.holding = Some(steps(words)?),
            "wants" => fields.wants = Some(steps(words)?),
            _ => return Err(words.bad_last(format!("there is no field {name}"))),
        }
        Ok(())
    }

    fn cookie(&self, words: &mut Words<'_>, peer: PeerId) -> Read<CookieOf> {
        Ok(match words.next("a cookie")? {
            "up" => CookieOf::Up(peer),
            "down" => CookieOf::Down(peer),
            "of" => CookieOf::Up(self.peer(words)?),
            "stale" => CookieOf::Stale,
            "wrong" => CookieOf::Wrong,
            "old" => CookieOf::Old,
            "echoed" => CookieOf::Echoed,
            "got" => CookieOf::Got,
            other => match number(other) {
                Some(cookie) => CookieOf::Number(cookie),
                None => return Err(words.bad_last(format!("{other} is no cookie"))),
            },
        })
    }

    fn source(&self, words: &mut Words<'_>) -> Read<Source> {
        if words.take("port") {
            return Ok(Source::Port(words.number("port")?));
        }
        let address = words.peek().and_then(|word| word.parse().ok());
        if let Some(address) = address {
            words.next("an address")?;
            return Ok(Source::Address(address));
        }
        Ok(Source::Peer(self.peer(words)?))
    }
}

/// `0,1`, `none` or a hexadecimal mask.
pub(super) fn members(words: &mut Words<'_>) -> Read<Members> {
    let word = words.next("members")?;
    if word == "none" {
        return Ok(Members::EMPTY);
    }
    if let Some(digits) = word.strip_prefix("0x") {
        let mask = u64::from_str_radix(digits, 16).ok();
        return mask.map(Members).ok_or_else(|| words.bad_last(format!("{word} is no mask")));
    }
    let mut mask = 0;
    for rank in word.split(',') {
        let rank = number::<u8>(rank).filter(|rank| *rank < 64);
        let rank = rank.ok_or_else(|| words.bad_last(format!("{word} is no list of ranks")))?;
        mask |= 1 << rank;
    }
    Ok(Members(mask))
}

/// `0,2`, or `none`.
pub(super) fn steps(words: &mut Words<'_>) -> Read<Vec<u32>> {
    let word = words.next("steps")?;
    if word == "none" {
        return Ok(Vec::new());
    }
    let steps: Option<Vec<u32>> = word.split(',').map(number).collect();
    steps.ok_or_else(|| words.bad_last(format!("{word} is no list of steps")))
}

fn flags(words: &mut Words<'_>) -> Read<Flags> {
    let word = words.next("flags")?;
    if word == "none" {
        return Ok(Flags::NONE);
    }
    let mut all = Flags::NONE;
    for name in word.split(',') {
        let flag = Flags::ALL.iter().find(|(_, known)| *known == name);
        let flag = flag.ok_or_else(|| words.bad_last(format!("{name} is no flag")))?;
        all = all.union(flag.0);
    }
    Ok(all)
}

fn checksum(words: &mut Words<'_>) -> Read<Checksum> {
    Ok(match words.next("wrong, missing, ip or zero")? {
        "wrong" => Checksum::Wrong,
        "missing" => Checksum::Missing,
        "ip" => Checksum::WrongIp,
        "zero" => Checksum::Zero,
        other => return Err(words.bad_last(format!("{other} is none of wrong, missing, ip, zero"))),
    })
}

fn word<T: FromStr>(words: &mut Words<'_>, none: T, what: &str) -> Read<T> {
    let word = words.next(what)?;
    if word == "none" {
        return Ok(none);
    }
    word.parse().map_err(|_| words.bad_last(format!("{word} is no {what}")))
}
