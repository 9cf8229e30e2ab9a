//! Push jobs whose slots are in a switch: what `role/switch` asks about them. It decides nothing.

use weft_control::PushConfig;
use weft_wire::frame::Encap;
use weft_wire::{Cookie, GroupId, JobId, Members, Rank};

use super::Gather;
use super::job::Job;
use crate::role::channel::{ChannelClient, Peer, Standing};
use crate::role::way::Way;

/// A push job, as the switch needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushView<'a> {
    job: &'a Job,
}

/// A group that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupView {
    pub(crate) id: GroupId,
    /// Different for each time that the id was installed.
    pub(crate) installation: u32,
    pub(crate) mask: Members,
    pub(crate) chunks: u32,
    pub(crate) exponent: i8,
    pub(crate) replicate: bool,
}

impl<'a> PushView<'a> {
    pub(crate) fn config(&self) -> &'a PushConfig {
        &self.job.config
    }

    /// Workers that have a channel.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (Rank, Way<'a>)> + use<'a> {
        let host = &self.job.workers;
        host.worker_mask().iter().filter_map(|rank| {
            let (encap, cookie_up) = host.way_in(Peer::Worker(rank))?;
            let (_, cookie_down) = host.path(Peer::Worker(rank))?;
            Some((rank, Way { encap, cookie_up, cookie_down }))
        })
    }

    /// The server, while there is a channel to it.
    pub(crate) fn server(&self) -> Option<Way<'a>> {
        way_to(&self.job.server)
    }

    /// The replica, while there is a channel to it.
    pub(crate) fn replica(&self) -> Option<Way<'a>> {
        way_to(self.job.replica.as_ref()?)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupView> + use<'a> {
        self.job.groups.iter().map(|group| GroupView {
            id: group.id,
            installation: group.installation,
            mask: group.mask,
            chunks: group.range.len,
            exponent: group.exponent,
            replicate: group.replicate,
        })
    }
}

/// To a host of channels frames carry the cookie that is up.
fn way_to(client: &ChannelClient) -> Option<Way<'_>> {
    let terms = client.terms().filter(|_| client.standing() == Standing::Open)?;
    let (encap, cookie): (&Encap, Cookie) = client.path()?;
    Some(Way { encap, cookie_up: terms.cookie_down, cookie_down: cookie })
}

impl Gather {
    /// The jobs that are here.
    pub(crate) fn views(&self) -> impl Iterator<Item = PushView<'_>> {
        self.jobs().map(|job| PushView { job })
    }

    /// The group that is open in a row.
    pub(crate) fn group_in(&self, job: JobId, row: u16) -> Option<GroupId> {
        let push = self.find(job)?;
        Some(self.job(push)?.groups.in_row(row)?.id)
    }

    /// True when the group is open.
    pub(crate) fn has_group(&self, job: JobId, group: GroupId) -> bool {
        let job = self.find(job).and_then(|push| self.job(push));
        job.is_some_and(|job| job.groups.find(group).is_ok())
    }
}
