//! A member of a windowed lease that has no sums to make: it shakes hands and sends what it is
//! given (SPEC#handshake). For frames that nobody sent as they are needed: a capture without a
//! handshake, and hand-made recordings.

use weft_kernel::crc32c;
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Phase};
use weft_wire::{ChunkIndex, Cookie, Epoch, GroupId, JobId, MacAddr, Rank};

/// A member and what its box has told it.
#[derive(Clone, Debug)]
pub struct Member {
    encap: Encap,
    job: JobId,
    row: u16,
    rank: Rank,
    life: u64,
    token: u64,
    epoch: Epoch,
    session: u64,
    cookie_up: Cookie,
    cookie_down: Cookie,
    group: Option<GroupId>,
    has_checksum: bool,
    /// Told to send its datagrams without a CRC.
    is_bare: bool,
}

impl Member {
    /// A member at `own` of a box at `peer`, in lane 0. `life` is not 0. `None` if the addresses
    /// are of two families.
    #[must_use]
    pub fn new(
        (own, peer): (Endpoint, Endpoint),
        job: JobId,
        row: u16,
        rank: Rank,
        life: u64,
    ) -> Option<Self> {
        Some(Self {
            encap: Encap::new(own, peer)?,
            job,
            row,
            rank,
            life,
            token: 0,
            epoch: Epoch::default(),
            session: 0,
            cookie_up: Cookie::default(),
            cookie_down: Cookie::default(),
            group: None,
            has_checksum: false,
            is_bare: false,
        })
    }

    /// Gives its datagrams a UDP checksum and, but for the handshake, no CRC.
    #[must_use]
    pub fn with_checksum(mut self) -> Self {
        self.has_checksum = true;
        self
    }

    /// Begins a new life.
    pub fn begin(&mut self, life: u64) {
        (self.life, self.token, self.group) = (life, 0, None);
    }

    /// Speaks from this Ethernet address from now on.
    pub fn move_to(&mut self, mac: MacAddr) {
        let own = Endpoint { mac, ..self.encap.source() };
        // The two ends stay of one family.
        self.encap = Encap::new(own, self.encap.target()).unwrap_or(self.encap);
    }

    /// True once the box has told it to send its datagrams without a CRC.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// What its frames carry, once it was welcome: the cookie and the group.
    #[must_use]
    pub fn terms(&self) -> Option<(Cookie, GroupId)> {
        Some((self.cookie_up, self.group?))
    }

    /// What the box's frames carry, once it was welcome.
    #[must_use]
    pub fn cookie_down(&self) -> Cookie {
        self.cookie_down
    }

    /// The session that it is in.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }

    /// A HELLO.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        self.handshake(Hello { life: self.life, ..Hello::new(Phase::Hello) })
    }

    /// A JOIN afresh.
    #[must_use]
    pub fn join(&self) -> Vec<u8> {
        self.resume(0, &Hello::new(Phase::Join), &[])
    }

    /// A JOIN that resumes a session, with the held steps that `held` and its bitmap say.
    #[must_use]
    pub fn resume(&self, session: u64, held: &Hello, bitmap: &[u8]) -> Vec<u8> {
        let (life, token) = (self.life, self.token);
        let (low_step, step_bits) = (held.low_step, held.step_bits);
        let hello = Hello { life, token, session, low_step, step_bits, ..Hello::new(Phase::Join) };
        self.handshake_with(hello, bitmap)
    }

    /// A CLOSE.
    #[must_use]
    pub fn close(&self) -> Vec<u8> {
        self.word(Phase::Close)
    }

    /// A word of a member that was welcome: CLOSE, LISTEN or DEAF.
    #[must_use]
    pub fn word(&self, phase: Phase) -> Vec<u8> {
        let (life, epoch, cookie_up) = (self.life, self.epoch, self.cookie_up);
        self.handshake(Hello { life, epoch, cookie_up, ..Hello::new(phase) })
    }

    /// A datagram with this header and payload; with a CRC, unless the member has UDP's checksum or
    /// was told to do without.
    #[must_use]
    pub fn frame(&self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; HEADER_LEN + payload.len()];
        datagram[HEADER_LEN..].copy_from_slice(payload);
        header.emit(&mut Packet::new_unchecked(&mut datagram[..]));
        self.datagram(&mut datagram, !self.has_checksum && !self.is_bare)
    }

    /// A contribution of elements in network order.
    ///
    /// # Panics
    /// If there are more elements than a datagram can carry.
    #[must_use]
    pub fn contribution(
        &self,
        chunk: u32,
        exponent: i8,
        element_type: ElementType,
        payload: &[u8],
    ) -> Vec<u8> {
        let count = payload.len() / element_type.len_bytes().max(1);
        let header = Header {
            chunk: ChunkIndex(chunk),
            element_type,
            operation: Operation::Sum,
            exponent,
            count: u16::try_from(count).expect("at most a datagram"),
            ..self.header(Kind::Contrib)
        };
        self.frame(&header, payload)
    }

    /// A header of this member's, of a datagram without elements.
    #[must_use]
    pub fn header(&self, kind: Kind) -> Header {
        let (cookie, group) = self.terms().unwrap_or_default();
        Header {
            kind,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: self.job,
            cookie,
            group,
            chunk: ChunkIndex(0),
            element_type: ElementType::None,
            operation: Operation::None,
            exponent: 0,
            count: 0,
            members: self.rank.bit(),
        }
    }

    /// Writes the outer headers of a datagram, and what protects it.
    #[must_use]
    pub fn datagram(&self, datagram: &mut [u8], has_crc: bool) -> Vec<u8> {
        let mut packet = Packet::new_unchecked(&mut datagram[..]);
        packet.set_crc(0);
        if has_crc {
            packet.seal(crc32c);
        }
        let start = self.encap.header_len();
        let mut frame = vec![0; start + datagram.len()];
        frame[start..].copy_from_slice(datagram);
        self.encap.emit(&mut frame, datagram.len());
        if self.has_checksum || self.encap.source().addr.is_ipv6() {
            self.encap.finish(&mut frame);
        }
        frame
    }

    /// Takes what a frame to it says of the handshake; `None` if it says nothing of it.
    pub fn handle(&mut self, frame: &[u8]) -> Option<Phase> {
        let udp = Udp::parse(frame).ok()?;
        if udp.target != self.encap.source().addr {
            return None;
        }
        let packet = Packet::new_checked(frame.get(udp.payload_range())?).ok()?;
        if packet.kind() != Some(Kind::Hello) || packet.job() != self.job {
            return None;
        }
        let (hello, _) = Hello::parse(packet.payload()).ok()?;
        if hello.life != self.life || packet.group().row() != self.row {
            return None;
        }
        match hello.phase {
            Phase::Challenge => self.token = hello.token,
            Phase::Welcome => {
                (self.epoch, self.session) = (hello.epoch, hello.session);
                (self.cookie_up, self.cookie_down) = (hello.cookie_up, hello.cookie_down);
                self.is_bare = hello.integrity == Integrity::None;
                self.group = Some(packet.group());
            }
            _ => {}
        }
        Some(hello.phase)
    }

    fn handshake(&self, hello: Hello) -> Vec<u8> {
        self.handshake_with(hello, &[])
    }

    fn handshake_with(&self, hello: Hello, bitmap: &[u8]) -> Vec<u8> {
        let header = Header {
            cookie: Cookie::default(),
            group: GroupId::new(self.row, 0),
            ..self.header(Kind::Hello)
        };
        let mut datagram = vec![0; HEADER_LEN + hello.body_len()];
        hello.emit(bitmap, &mut datagram[HEADER_LEN..]);
        header.emit(&mut Packet::new_unchecked(&mut datagram[..]));
        self.datagram(&mut datagram, true)
    }
}
