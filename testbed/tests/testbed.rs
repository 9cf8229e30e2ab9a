//! `weft` as scripts see it.

mod certs;
mod cli;
mod cluster;
mod elastic;
mod interrupt;
mod jobs;
mod lab;
mod operator;
mod plan;
mod replay;
mod replay_net_pcap;
mod virtual_time;
