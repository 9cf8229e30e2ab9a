//! Factors a matrix that a seed makes, by parameter blocking: each process has rows of it, and
//! works in each step on columns that no other works on. Processes are threads here, and so is the
//! home of the columns' factors; with `[[keys]]` in its file a weft-node is that.
//!
//! `cargo run -p weft-client --example matrix_factorisation`

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use weft_client::keys::{KeyConfig, KeyError, KeySession};
use weft_engine::random::{Seed, SplitMix64};
use weft_engine::role::keys::{Home, HomeConfig, Outbox, To};
use weft_wire::{Nanos, frame::UdpAddr};

const PROCESSES: u8 = 3;
const ROWS: u64 = 120;
const COLUMNS: u32 = 90;
const RANK: u16 = 8;

fn main() -> anyhow::Result<()> {
    let bind = |_| UdpSocket::bind("127.0.0.1:0");
    let mut sockets = (0..=PROCESSES).map(bind).collect::<Result<Vec<_>, _>>()?;
    let mut addrs = sockets.iter().map(UdpSocket::local_addr).collect::<Result<Vec<_>, _>>()?;
    let (socket, home) = (sockets.remove(0), addrs.remove(0));
    drop(sockets);
    let config = KeyConfig::new(home, addrs, 0, RANK, COLUMNS);
    let (of_home, of_all) = (config.clone(), &config);
    std::thread::spawn(move || serve(socket, &of_home));
    let (barrier, loss) = (&Barrier::new(PROCESSES.into()), &Mutex::new(0.0));
    Ok(std::thread::scope(|scope| {
        let run = move |me| {
            let session = KeySession::connect(&KeyConfig { me, ..of_all.clone() })?;
            train(&session, me.into(), barrier, loss)
        };
        let threads: Vec<_> = (0..PROCESSES).map(|me| scope.spawn(move || run(me))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("none panics"))
    })?)
}

/// A process keeps the factors of its rows; those of the columns are the table's rows.
fn train(keys: &KeySession, me: u64, all: &Barrier, loss: &Mutex<f32>) -> Result<(), KeyError> {
    let count = u64::from(PROCESSES);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let rows = (me..ROWS).step_by(PROCESSES.into());
    let mut rows: Vec<_> = rows.map(|row| (row, factor(1, row))).collect();
    for epoch in 0..30 {
        for step in 0..count {
            all.wait();
            let columns = (me + step) % count..COLUMNS.into();
            let columns: Vec<u64> = columns.step_by(PROCESSES.into()).collect();
            keys.localize(&columns)?;
            for column in columns {
                let mut other = vec![0.0; RANK.into()];
                for (row, own) in &mut rows {
                    keys.pull(&[column], &mut other)?;
                    let error = dot(&factor(3, *row), &factor(2, column)) - dot(own, &other);
                    let update: Vec<f32> = own.iter().map(|own| 0.1 * error * own).collect();
                    keys.push(&[column], &update)?;
                    own.iter_mut().zip(&other).for_each(|(own, it)| *own += 0.1 * error * it);
                    *loss.lock().expect("none panics") += error * error;
                }
            }
        }
        if all.wait().is_leader() {
            let sum = std::mem::take(&mut *loss.lock().expect("none panics"));
            println!("epoch {epoch}: loss {:.6}", sum / (ROWS as f32 * COLUMNS as f32));
        }
    }
    Ok(())
}

fn factor(kind: u64, index: u64) -> Vec<f32> {
    let mut random = SplitMix64::new(kind << 32 | index);
    (0..RANK).map(|_| (random.next_u64() % 1000) as f32 / 1000.0 - 0.5).collect()
}

/// The home of the table.
fn serve(socket: UdpSocket, keys: &KeyConfig) {
    let processes: Vec<UdpAddr> = keys.processes.iter().map(|addr| (*addr).into()).collect();
    let table = keys.check().expect("it is good");
    let config = HomeConfig { table, processes: &processes, death_timeout: Nanos::MAX };
    let mut home = Home::new(&config, &Seed::from(1), Nanos(0)).expect("it is good");
    let (begun, mut octets) = (Instant::now(), [0; 2048]);
    let mut out = Out(socket, &keys.processes);
    while let Ok((len, source)) = out.0.recv_from(&mut octets) {
        let now = Nanos::from_millis(begun.elapsed().as_secs() * 1000);
        let _ = home.handle_datagram(now, source.into(), &octets[..len], &mut out);
    }
}

struct Out<'a>(UdpSocket, &'a [SocketAddr]);

impl Outbox for Out<'_> {
    fn send(&mut self, to: To, datagram: &[u8]) {
        let To::Process(process) = to else { return };
        let _ = self.0.send_to(datagram, self.1[usize::from(process)]);
    }
}
