//! The library of a training program: its workers join a group at an aggregator and sum vectors
//! over the network, push updates to a parameter server, or share a table of rows.
//!
//! Contents: [connect](#connect), [sums](#sums), [tickets](#tickets), [pushes](#pushes),
//! [tables of rows](#tables-of-rows), [leaf](#leaf), [errors](#errors), [limits](#limits). Whole
//! programs are in `dataplane/client/examples`; `docs/node.md` starts the aggregator.
//!
//! # Connect
//!
//! A [`Config`] has the worker's own address, the aggregator's, and the worker's rank: its place in
//! the `members` of the row that the aggregator's file defines. [`Session::connect`] returns when
//! all workers of the row have joined, and proves on the way that a full packet reaches the
//! aggregator.
//!
//! ```no_run
//! use weft_client::{Config, Session};
//!
//! # fn main() -> Result<(), weft_client::Error> {
//! let [worker, aggregator] = ["10.0.0.2:22500", "10.0.0.1:22341"].map(|a| a.parse().unwrap());
//! let mut session = Session::connect(&Config::new(worker, aggregator).rank(0))?;
//! println!("{} workers, over {}", session.lease().fan_in, session.port());
//! let mut gradient = vec![0.5_f32; 100_000];
//! session.allreduce(&mut gradient)?; // now the sum over all workers
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Config::io`] chooses the port. By default it is shared memory where the aggregator is on this
//! host and offers it, else the kernel's UDP sockets; [`Io::AfPacket`] sends and receives on an
//! interface, past the kernel's UDP (needs CAP_NET_RAW), and the feature `dpdk` adds
//! `Session::connect_dpdk`. [`Config::multicast`] receives each sum once for all workers of a
//! network that carries multicast. [`Config::mtu`] is the largest packet of the path, and
//! [`Config::lanes`] the number of the aggregator's lanes: threads that sum, each with a part of
//! every vector.
//!
//! # Sums
//!
//! | call | sums |
//! | --- | --- |
//! | [`Session::allreduce`] | one vector of f32, in place |
//! | [`Session::allreduce_many`] | several vectors in one round: small ones share packets |
//! | [`Session::allreduce_i32`] | integers, exact modulo 2^32 or clamped, as the row is set |
//!
//! Calls block. Nothing runs between them, so a worker that computes keeps the others waiting.
//! Every worker makes the same calls in the same order, with vectors of the same lengths.
//! [`Config::numbers`] is what travels for each element:
//!
//! | [`Numbers`] | result |
//! | --- | --- |
//! | `Fixed` (default) | i32 fixed point, the row's exponent: the same bits in any order of arrival |
//! | `Block` | as `Fixed`, with an exponent a block, agreed in a round before each sum |
//! | `F32` | binary32; the same bits in every run only where the row sums in rank order |
//! | `Bf16` | half the bytes; summed in f32, rounded once |
//!
//! In fixed point a value that does not fit is clamped and NaN becomes 0;
//! [`RoundReport::chunks_clamped`] counts the chunks that have such a value.
//!
//! ```no_run
//! # use weft_client::{Config, Numbers, Session};
//! # fn main() -> Result<(), weft_client::Error> {
//! # let [worker, aggregator] = ["10.0.0.2:22500", "10.0.0.1:22341"].map(|a| a.parse().unwrap());
//! let config = Config::new(worker, aggregator).rank(0).numbers(Numbers::Bf16);
//! let mut session = Session::connect(&config)?;
//! let (mut weights, mut bias) = (vec![0.5_f32; 4096], vec![0.1_f32; 64]);
//! let report = session.allreduce_many(&mut [&mut weights, &mut bias])?;
//! println!("{} chunks in {} ns", report.chunks, report.duration_ns);
//! # Ok(())
//! # }
//! ```
//!
//! # Tickets
//!
//! [`Background`] gives a session a thread of its own, so that sums go on while the program
//! computes. Vectors that wait are summed together; the bits are those of separate calls.
//!
//! ```no_run
//! # use weft_client::{Background, Config, Session};
//! # fn gradient_of(layer: usize) -> Vec<f32> { vec![layer as f32; 1000] }
//! # fn main() -> Result<(), weft_client::Error> {
//! # let [worker, aggregator] = ["10.0.0.2:22500", "10.0.0.1:22341"].map(|a| a.parse().unwrap());
//! # let session = Session::connect(&Config::new(worker, aggregator).rank(0))?;
//! let session = Background::new(session)?;
//! let mut tickets = Vec::new();
//! for layer in (0..20).rev() {
//!     tickets.push(session.start(gradient_of(layer))?); // every worker starts them in this order
//! }
//! for ticket in tickets {
//!     let sum = ticket.wait()?.values;
//!     # drop(sum);
//! }
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Pushes
//!
//! [`push::PushSession`] is asynchronous SGD: pull a model with its version, push an update
//! computed on it, and learn what became of it: committed, dropped because it was too old, or void.
//! With a controller ([`push::PushConfig::controller`]) updates travel by its plan; without one the
//! server takes them in order of arrival.
//!
//! ```no_run
//! use weft_client::push::{Outcome, PushConfig, PushSession};
//!
//! # fn main() -> Result<(), weft_client::push::PushError> {
//! let [worker, server] = ["10.0.0.2:22500", "10.0.0.1:22341"].map(|a| a.parse().unwrap());
//! let mut session = PushSession::connect(&PushConfig::new(worker, server).rank(0))?;
//! let mut model = vec![0.0_f32; 100_000];
//! let version = session.pull(&mut model)?;
//! let update: Vec<f32> = model.iter().map(|w| -0.1 * w).collect();
//! let ticket = session.push(&update, version)?; // returns at once
//! match ticket.wait()? {
//!     Outcome::Committed { version } => println!("in version {}", version.0),
//!     Outcome::Dropped | Outcome::Void => println!("pull a fresh model"),
//! }
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Tables of rows
//!
//! [`keys::KeySession`] shares a table of rows of f32 among processes. A row is at one process at a
//! time and moves to the one that localizes it; access to a row that is here sends nothing. Threads
//! share a session by reference. A node with a `[[keys]]` section is the table's home: it knows
//! where each row is.
//!
//! ```no_run
//! use weft_client::keys::{KeyConfig, KeySession};
//!
//! # fn main() -> Result<(), weft_client::keys::KeyError> {
//! let processes = ["10.0.0.2:4000", "10.0.0.3:4000"].map(|a| a.parse().unwrap()).to_vec();
//! let (home, me, row_len, key_count) = ("10.0.0.1:22341".parse().unwrap(), 0, 16, 1000);
//! let session = KeySession::connect(&KeyConfig::new(home, processes, me, row_len, key_count))?;
//! session.localize(&[7, 8])?; // both rows move here
//! session.push(&[7], &[0.5; 16])?; // adds
//! let mut rows = [0.0; 32];
//! session.pull(&[7, 900], &mut rows)?; // 900 may be at another process
//! # Ok(())
//! # }
//! ```
//!
//! # Leaf
//!
//! A leaf is an aggregator for the workers of one host: they sum in memory that they share, and one
//! sum leaves the host for the aggregator above. `weft-node` is one with a `parent` in its rows; a
//! worker's process can be one too, with the same file ([`leaf::Leaf`]).
//!
//! ```no_run
//! use std::path::Path;
//! use std::time::Duration;
//! use weft_client::Session;
//! use weft_client::leaf::{self, Leaf};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = Path::new("dataplane/node/configs/two-level-leaf.toml");
//! let leaf = Leaf::read(file)?; // in one process of the host
//! let mut session = Session::connect(&leaf::worker(&leaf::read(file)?, 0)?)?;
//! session.allreduce(&mut [1.0; 1000])?;
//! session.close()?;
//! let all_left = leaf.close(Duration::from_secs(2)); // waits for the host's other workers
//! # drop(all_left);
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! After any error but [`Error::Config`] and [`Error::Wrong`] a session is over; connect again to
//! begin a new life. A silent aggregator is an error within [`Config::connect_timeout`] (5 s), a
//! member that is missing or dies, named by its rank, within [`Config::member_timeout`] (30 s).
//! [`Session::close`] waits for the others up to [`Config::close_linger`]; a session that is
//! dropped instead leaves them to their timeouts. A parameter server and a table have errors of
//! their own, [`push::PushError`] and [`keys::KeyError`].
//!
//! ```no_run
//! use std::time::Duration;
//! use weft_client::{Config, Error, Session};
//!
//! # let [worker, aggregator] = ["10.0.0.2:22500", "10.0.0.1:22341"].map(|a| a.parse().unwrap());
//! let mut config = Config::new(worker, aggregator).rank(0);
//! config.member_timeout = Duration::from_secs(5);
//! match Session::connect(&config) {
//!     Ok(session) => println!("{} workers", session.lease().fan_in),
//!     Err(Error::Config { field, problem }) => eprintln!("`{field}` {problem}"),
//!     Err(Error::Lanes { actual, .. }) => config.lanes = actual, // and connect again
//!     Err(error) => eprintln!("{error}"),
//! }
//! ```
//!
//! # Limits
//!
//! - A row has at most 64 workers, and a table 64 processes; a group does not change while it is
//!   open. Two levels of aggregators.
//! - A sum has at most 2^32 chunks, a chunk being what one packet carries. A row's `chunks_max`
//!   bounds what one lease sums; a session forms its group again within a call when that is used
//!   up, and counts it in [`Statistics::renewals`].
//! - [`background::TICKETS_MAX`] (256) vectors wait in the background; one more waits for room.
//!   [`push::PushConfig::updates_open_max`] (2) updates are under way.
//! - No f16, no sparse gradients, no encryption of payloads; cookies keep strangers out, not
//!   readers of the path (`docs/security.md`).
//! - Linux on x86_64. `docs/support.md` has the rest, layer by layer.
//!
//! [`checkpoint`] keeps what a job needs to begin again, and [`rounds`] has a controller pause and
//! resize an allreduce between two rounds. [`WorkerPort`], [`hosted`] and [`payload`] are for
//! programs with ports or vectors of their own. The state machines are
//! `weft_engine::role::{worker, push, keys}`; here are the port, the clock and the data.
#![forbid(unsafe_code)]

pub mod background;
pub mod checkpoint;
mod config;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod error;
mod group;
pub mod hosted;
mod io;
pub mod keys;
pub mod leaf;
mod many;
mod messages;
mod narrow;
pub mod payload;
mod port;
pub mod push;
pub mod rounds;
mod session;

pub use background::{Background, Sum, Ticket};
pub use config::{Config, Io, Numbers};
pub use error::Error;
pub use messages::MessageCounter;
pub use narrow::NarrowPath;
pub use port::WorkerPort;
pub use session::{RoundReport, Session, Statistics};

/// The example of README.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
