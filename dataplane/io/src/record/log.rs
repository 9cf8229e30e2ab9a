//! The lines of a recording's log: what a lane met besides frames, in order. Text, one entry a
//! line, words apart by one space; numbers are decimal, octets hexadecimal.
//!
//! | line | what happened |
//! | --- | --- |
//! | `breath NOW rx N tx N timers N refused N nombuf A,B` | frames came, left, or were asked for |
//! | `draw LABEL WORD` | the engine drew a number |
//! | `command NOW OCTETS` | a controller's word, as the interface writes it |
//! | `controller NOW there` or `gone` | a controller has attached, or its stream has ended |
//! | `settled` | the controller has had the box hold all that it is to hold |
//! | `durable JOB POSITION` | the disk has a job's records up to here |
//! | `journal JOB POSITION LEN CRC` | the engine gave a record to be kept |
//! | `journal_full` | no record could be taken |
//! | `event OCTETS` | the engine told the controller something |
//! | `end REASON` | the recording is whole up to here |

use std::borrow::Cow;
use std::io::Write as _;

use weft_wire::Nanos;

/// A breath in which something happened.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Breath {
    /// Its time.
    pub now: Nanos,
    /// Frames received.
    pub rx: u32,
    /// Frames offered to the port.
    pub tx: u32,
    /// Times that the engine asked for a frame of its own, because a timer was due.
    pub timers: u32,
    /// Offered frames that the port refused.
    pub refused: u32,
    /// Which of the breath's calls for a frame, counted from 0, found the pool empty.
    pub nombuf: Vec<u32>,
}

impl Breath {
    /// True unless the breath left everything as it was.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        self.rx > 0 || self.tx > 0 || self.timers > 0 || !self.nombuf.is_empty()
    }
}

/// A line of the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Entry<'a> {
    /// A breath.
    Breath(Breath),
    /// A drawn number.
    Draw {
        /// What for.
        label: &'a str,
        /// The number.
        word: u64,
    },
    /// A controller's command.
    Command {
        /// When it was taken.
        now: Nanos,
        /// The command.
        octets: Cow<'a, [u8]>,
    },
    /// A controller came or went.
    Controller {
        /// When that was noticed.
        now: Nanos,
        /// True when it came.
        is_there: bool,
    },
    /// The box has all that it is to hold.
    Settled,
    /// Records became durable.
    Durable {
        /// The job.
        job: u16,
        /// The last record's position.
        position: u64,
    },
    /// A record was taken.
    Journal {
        /// The job.
        job: u16,
        /// Its position.
        position: u64,
        /// Its length.
        len: u64,
        /// CRC32C of its octets.
        crc: u32,
    },
    /// There was no room for records.
    JournalFull,
    /// The engine told something.
    Event {
        /// The event.
        octets: Cow<'a, [u8]>,
    },
    /// Nothing comes after this.
    End {
        /// Why.
        reason: &'a str,
    },
}

/// A line that is none of a log.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a line of a log cannot be {line:?}")]
pub struct LogError {
    line: String,
}

impl<'a> Entry<'a> {
    /// Appends the line.
    pub fn write(&self, out: &mut Vec<u8>) {
        let written = match self {
            Self::Breath(breath) => write_breath(out, breath),
            Self::Draw { label, word } => writeln!(out, "draw {label} {word}"),
            Self::Command { now, octets } => {
                let head = write!(out, "command {} ", now.0);
                head.and_then(|()| write_octets(out, octets))
            }
            Self::Controller { now, is_there } => {
                let word = if *is_there { "there" } else { "gone" };
                writeln!(out, "controller {} {word}", now.0)
            }
            Self::Settled => writeln!(out, "settled"),
            Self::Durable { job, position } => writeln!(out, "durable {job} {position}"),
            Self::Journal { job, position, len, crc } => {
                writeln!(out, "journal {job} {position} {len} {crc:08x}")
            }
            Self::JournalFull => writeln!(out, "journal_full"),
            Self::Event { octets } => {
                let head = write!(out, "event ");
                head.and_then(|()| write_octets(out, octets))
            }
            Self::End { reason } => writeln!(out, "end {reason}"),
        };
        written.expect("memory takes all that is written");
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// [`LogError`] with the line, cut to a length that can be shown.
    pub fn parse(line: &'a str) -> Result<Self, LogError> {
        read(line).ok_or_else(|| LogError { line: line.chars().take(SHOWN_MAX).collect() })
    }
}

fn write_breath(out: &mut Vec<u8>, breath: &Breath) -> std::io::Result<()> {
    let Breath { now, rx, tx, timers, refused, nombuf } = breath;
    write!(out, "breath {} rx {rx} tx {tx}", now.0)?;
    if *timers > 0 {
        write!(out, " timers {timers}")?;
    }
    if *refused > 0 {
        write!(out, " refused {refused}")?;
    }
    for (place, call) in nombuf.iter().enumerate() {
        let lead = if place == 0 { " nombuf " } else { "," };
        write!(out, "{lead}{call}")?;
    }
    writeln!(out)
}

fn write_octets(out: &mut Vec<u8>, octets: &[u8]) -> std::io::Result<()> {
    for octet in octets {
        write!(out, "{octet:02x}")?;
    }
    writeln!(out)
}

fn read(line: &str) -> Option<Entry<'_>> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = rest.split(' ');
    let entry = match word {
        "breath" => Entry::Breath(read_breath(&mut words)?),
        "draw" => {
            let (label, word) = rest.rsplit_once(' ')?;
            return Some(Entry::Draw { label, word: word.parse().ok()? });
        }
        "command" => {
            let now = Nanos(words.next()?.parse().ok()?);
            Entry::Command { now, octets: octets(words.next()?)?.into() }
        }
        "controller" => {
            let now = Nanos(words.next()?.parse().ok()?);
            let is_there = match words.next()? {
                "there" => true,
                "gone" => false,
                _ => return None,
            };
            Entry::Controller { now, is_there }
        }
        "durable" => {
            let job = words.next()?.parse().ok()?;
            Entry::Durable { job, position: words.next()?.parse().ok()? }
        }
        "journal" => {
            let job = words.next()?.parse().ok()?;
            let position = words.next()?.parse().ok()?;
            let len = words.next()?.parse().ok()?;
            let crc = u32::from_str_radix(words.next()?, 16).ok()?;
            Entry::Journal { job, position, len, crc }
        }
        "settled" if rest.is_empty() => return Some(Entry::Settled),
        "journal_full" if rest.is_empty() => return Some(Entry::JournalFull),
        "event" => Entry::Event { octets: octets(words.next()?)?.into() },
        "end" => return Some(Entry::End { reason: rest }),
        _ => return None,
    };
    words.next().is_none().then_some(entry)
}

fn read_breath<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Breath> {
    let mut breath = Breath { now: Nanos(words.next()?.parse().ok()?), ..Breath::default() };
    while let Some(key) = words.next() {
        let value = words.next()?;
        match key {
            "rx" => breath.rx = value.parse().ok()?,
            "tx" => breath.tx = value.parse().ok()?,
            "timers" => breath.timers = value.parse().ok()?,
            "refused" => breath.refused = value.parse().ok()?,
            "nombuf" => {
                let calls = value.split(',').map(|call| call.parse().ok());
                breath.nombuf = calls.collect::<Option<_>>()?;
            }
            _ => return None,
        }
    }
    Some(breath)
}

fn octets(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let octet = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    if rest.is_empty() { pairs.iter().map(octet).collect() } else { None }
}

/// Letters of a bad line that are shown.
const SHOWN_MAX: usize = 60;
