//! `weft certs init|issue|list|renew`.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use time::OffsetDateTime;
use weft_rpc::certs::Validity;
use weft_rpc::identity::Identity;
use weft_testbed::certs::{CA, Entry, Folder, FolderError};

use super::{Exit, Failure, Format, Outcome, emit, emit_csv, emit_json};

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Make a folder with a CA
    Init(InitArgs),
    /// Sign a certificate for a controller, a node, a worker or an operator
    Issue(IssueArgs),
    /// List the certificates of a folder and when they end
    ///
    /// The exit status is 1 when one has ended, or is not of the folder's CA.
    List(ListArgs),
    /// Sign certificates anew that end soon
    ///
    /// Same owner, hosts and key. Controllers, nodes and workers read them by themselves, with the
    /// next connection; streams that are open go on.
    Renew(RenewArgs),
}

#[derive(Debug, Args)]
struct FolderArgs {
    /// The folder.
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// How long the CA is valid.
    #[arg(long, default_value_t = 3650, value_parser = days())]
    days: u32,
}

#[derive(Debug, Args)]
pub(crate) struct IssueArgs {
    /// What its owner is.
    role: Role,
    /// node: the one name that it may attach under [default: any]; operator: who it is.
    #[arg(long)]
    name: Option<String>,
    /// worker: index of the one job that it may attach to [default: any].
    #[arg(long)]
    job: Option<u16>,
    /// worker: its one rank there [default: any].
    #[arg(long, requires = "job")]
    rank: Option<u8>,
    /// controller: an address or name that it is called by; may be repeated.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    #[command(flatten)]
    folder: FolderArgs,
    /// How long it is valid, but not beyond the CA.
    #[arg(long, default_value_t = DAYS, value_parser = days())]
    days: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    folder: FolderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RenewArgs {
    /// Which, as `list` names them [default: all that end soon].
    names: Vec<String>,
    /// What soon is.
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    within_days: u32,
    #[command(flatten)]
    folder: FolderArgs,
    /// How long they are valid from now on, but not beyond the CA.
    #[arg(long, default_value_t = DAYS, value_parser = days())]
    days: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Role {
    Controller,
    Node,
    Worker,
    Operator,
}

/// How long a certificate is valid unless told otherwise.
const DAYS: u32 = 365;

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

#[expect(clippy::disallowed_methods, reason = "certificates are valid by the time of day")]
pub(super) fn now_unix_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

pub(crate) fn run(command: CertsCommand, format: Format) -> Outcome {
    let now_unix_s = now_unix_s();
    match command {
        CertsCommand::Init(arguments) => {
            let folder = Folder::at(&arguments.folder.dir);
            folder.init(Validity::days(now_unix_s, arguments.days)).map_err(explain)?;
            show(&folder, &[CA.to_owned()], now_unix_s, format)
        }
        CertsCommand::Issue(arguments) => issue(&arguments, now_unix_s, format),
        CertsCommand::List(arguments) => {
            let folder = Folder::at(&arguments.folder.dir);
            let entries = folder.list().map_err(explain)?;
            let rows: Vec<Row> = entries.iter().map(|e| row(&folder, e, now_unix_s)).collect();
            let is_good = rows.iter().all(|row| row.state == State::Good);
            write(&rows, format)?;
            Ok(if is_good { 0 } else { Exit::Failed as u8 })
        }
        CertsCommand::Renew(arguments) => renew(&arguments, now_unix_s, format),
    }
}

fn issue(arguments: &IssueArgs, now_unix_s: i64, format: Format) -> Outcome {
    let IssueArgs { role, name, job, rank, hosts, .. } = arguments;
    let usage = |problem: String| Exit::Usage.because(anyhow!(problem));
    let only =
        |option: &str, is_given: bool, roles: &[Role]| match is_given && !roles.contains(role) {
            true => Err(usage(format!("{option} is not for this role"))),
            false => Ok(()),
        };
    only("--name", name.is_some(), &[Role::Node, Role::Operator])?;
    only("--job", job.is_some(), &[Role::Worker])?;
    only("--host", !hosts.is_empty(), &[Role::Controller])?;
    let identity = match role {
        Role::Controller if hosts.is_empty() => {
            let problem = "a controller is called by an address or a name: give --host";
            return Err(usage(problem.to_owned()));
        }
        Role::Controller => Identity::Controller,
        Role::Node => Identity::Node { name: name.clone() },
        Role::Worker => Identity::Worker { job: *job, rank: *rank },
        Role::Operator => Identity::Operator { name: name.clone() },
    };
    let identity = identity.checked().map_err(|problem| usage(problem.to_string()))?;
    let folder = Folder::at(&arguments.folder.dir);
    let validity = Validity::days(now_unix_s, arguments.days);
    let name = folder.issue(&identity, hosts, validity).map_err(explain)?;
    show(&folder, &[name], now_unix_s, format)
}

fn renew(arguments: &RenewArgs, now_unix_s: i64, format: Format) -> Outcome {
    let folder = Folder::at(&arguments.folder.dir);
    let entries = folder.list().map_err(explain)?;
    let soon_unix_s = now_unix_s + i64::from(arguments.within_days) * DAY_S;
    let ends_soon = |entry: &&Entry| {
        let Entry { name, described } = entry;
        name != CA && described.is_of_ca && described.validity.until_unix_s < soon_unix_s
    };
    let names: Vec<String> = match arguments.names.is_empty() {
        true => entries.iter().filter(ends_soon).map(|entry| entry.name.clone()).collect(),
        false => arguments.names.clone(),
    };
    if let Some(name) = names.iter().find(|name| !entries.iter().any(|entry| entry.name == **name))
    {
        return Err(Exit::Usage.because(anyhow!(
            "there is no certificate `{name}`; `weft certs list` shows those there are"
        )));
    }
    if names.iter().any(|name| name == CA) {
        return Err(Exit::Usage
            .because(anyhow!("a CA is not renewed but replaced: docs/security.md has the steps")));
    }
    for name in &names {
        folder.renew(name, Validity::days(now_unix_s, arguments.days)).map_err(explain)?;
    }
    show(&folder, &names, now_unix_s, format)
}

/// Writes what became of some certificates.
fn show(folder: &Folder, names: &[String], now_unix_s: i64, format: Format) -> Outcome {
    let entries = folder.list().map_err(explain)?;
    let of_them = entries.iter().filter(|entry| names.contains(&entry.name));
    let rows: Vec<Row> = of_them.map(|entry| row(folder, entry, now_unix_s)).collect();
    write(&rows, format)?;
    Ok(0)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    Ended,
    Foreign,
}

/// One certificate, as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// Its URI; `ca` for the CA.
    identity: String,
    hosts: String,
    /// The last second, as a date.
    until: String,
    days_left: i64,
    state: State,
    cert: String,
}

fn row(folder: &Folder, entry: &Entry, now_unix_s: i64) -> Row {
    let described = &entry.described;
    let until_unix_s = described.validity.until_unix_s;
    let identity = described.identity.as_ref().map(ToString::to_string);
    let is_ca = entry.name == CA;
    let is_foreign = !described.is_of_ca || (identity.is_none() && !is_ca);
    Row {
        name: entry.name.clone(),
        identity: identity.unwrap_or_else(|| if is_ca { CA } else { "none" }.to_owned()),
        hosts: described.hosts.join(" "),
        until: date(until_unix_s),
        days_left: (until_unix_s - now_unix_s).div_euclid(DAY_S),
        state: match (is_foreign, until_unix_s < now_unix_s) {
            (true, _) => State::Foreign,
            (false, true) => State::Ended,
            (false, false) => State::Good,
        },
        cert: folder.files(&entry.name).cert.display().to_string(),
    }
}

fn write(rows: &[Row], format: Format) -> Result<(), Failure> {
    match format {
        Format::Text => {
            let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
            let line = |row: &Row| {
                let state = match row.state {
                    State::Good => format!("{} days left", row.days_left),
                    State::Ended => "ENDED".to_owned(),
                    State::Foreign => "NOT OF THIS CA".to_owned(),
                };
                let hosts = if row.hosts.is_empty() { "" } else { "  " };
                let Row { name, identity, until, .. } = row;
                format!("{name:<width$}  {until}  {state:<14}  {identity}{hosts}{}\n", row.hosts)
            };
            emit(&rows.iter().map(line).collect::<String>())
        }
        Format::Json => emit_json(&rows),
        Format::Csv => emit_csv(rows),
    }
}

/// A day, as 2026-11-23.
fn date(unix_s: i64) -> String {
    OffsetDateTime::from_unix_timestamp(unix_s).map_or_else(
        |_| "beyond all calendars".to_owned(),
        |at| format!("{:04}-{:02}-{:02}", at.year(), u8::from(at.month()), at.day()),
    )
}

fn explain(error: FolderError) -> Failure {
    let is_usage = matches!(error, FolderError::Foreign { .. });
    if is_usage { Exit::Usage.because(error) } else { Exit::Failed.because(error) }
}

const DAY_S: i64 = 86_400;
