//! Every word about a band is answered once, also one that makes no sense: a real node on loopback,
//! and a controller that is played here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::common::{ConfigFile, Running, weft_node};
use crate::played::Controller;
use nix::sys::signal::Signal;
use weft_config::node::{
    BandsBy, BandsSection, ControllerSection, Io, NodeConfig, PortSection, ServerSection,
};
use weft_rpc::v1;
use weft_rpc::v1::command::Command;
use weft_rpc::v1::event::Event;

impl Controller {
    /// Its one answer: of which job and band, and why not.
    fn set(&self, job: u32, label: u32, band: Option<u32>) -> (u32, Option<u32>, String) {
        let command = Command::SetBands(v1::SetBands { job, label, band });
        let event = self.ask(v1::Command { command: Some(command) });
        match event.event {
            Some(Event::BandSet(set)) => (event.job, set.band, String::new()),
            Some(Event::BandRefused(refused)) => {
                (event.job, refused.band, refused.error().as_str_name().to_owned())
            }
            other => panic!("{other:?}"),
        }
    }
}

fn node(name: &str, at: u8, controller: &Controller, bands: Option<BandsSection>) -> Running {
    let ip = Ipv4Addr::new(127, 78, 0, at);
    let mut config = NodeConfig::new(PortSection::new(Io::Udp, IpAddr::from(ip)));
    let endpoint = format!("http://127.0.0.1:{}", controller.port);
    config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
    config.server = vec![ServerSection::new(0, vec![SocketAddr::from((ip, 4000))], 1000)];
    config.bands = bands;
    Running::start(&mut weft_node(&ConfigFile::new(name, &config), &[]))
}

#[test]
fn every_word_about_a_band_is_answered() {
    let port = BandsSection {
        by: BandsBy::Port,
        device: None,
        ..BandsSection::host(String::new(), Some(1_000_000))
    };
    for (name, at, bands, of_a_job) in
        [("answered-none", 1, None, "BAND_ERROR_NO_BANDS"), ("answered-port", 2, Some(port), "")]
    {
        let controller = Controller::start();
        let node = node(name, at, &controller, bands);
        let none = "BAND_ERROR_OUT_OF_RANGE";
        for (job, band, answer) in [
            (0, Some(0), of_a_job),
            (u32::MAX, Some(0), none),
            (65_536, None, none),
            (0, Some(256), none),
            (0, Some(u32::MAX), none),
            (0, None, of_a_job),
        ] {
            let said = controller.set(job, 3, band);
            assert_eq!(said, (job, band, answer.to_owned()), "{name}");
        }
        // A band that is none, labels that are none, and one that another job has.
        let taken = "BAND_ERROR_LABEL_TAKEN";
        for (job, label, band, answer) in [
            (0, 3, 7, none),
            (0, 0, 1, none),
            (0, 64, 1, none),
            (0, u32::MAX, 1, none),
            (0, 3, 1, ""),
            (1, 3, 1, taken),
            (1, 7, 1, ""),
        ] {
            let answer = if of_a_job.is_empty() { answer } else { of_a_job };
            let said = controller.set(job, label, Some(band));
            assert_eq!(said, (job, Some(band), answer.to_owned()), "{name} {label}");
        }
        node.end(Signal::SIGINT);
    }
}
