//! What leaves a target, in words that do not depend on what it drew.

use super::*;

impl Play<'_> {
    pub(super) fn observed(&mut self) -> Played<Vec<String>> {
        let mut seen = Vec::new();
        let script = self.script;
        for line in &script.lines {
            self.line = line.number;
            if let Step::Expect { .. } | Step::Bank { .. } = line.step {
                continue;
            }
            self.now = self.now.max(line.at.saturating_add(self.late));
            let before = self.target.drops();
            self.step(&line.step)?;
            for to in 0..self.inboxes.len() {
                while let Some(frame) = self.inboxes[to].pop_front() {
                    seen.push(format!("{}: {}", line.number, self.described(to, &frame)));
                    if let Ok(arrived) = Arrived::read(&frame) {
                        self.received[to] = Some(arrived);
                    }
                }
            }
            let after = self.target.drops();
            let rose = before.iter().zip(&after).filter(|(before, after)| before.1 < after.1);
            seen.extend(rose.map(|((name, _), _)| format!("{}: drop {name}", line.number)));
        }
        Ok(seen)
    }

    /// A frame in words, its cookie by whose it is.
    fn described(&self, to: PeerId, frame: &[u8]) -> String {
        let got = match Arrived::read(frame) {
            Ok(got) => got,
            Err(problem) => return problem,
        };
        let header = &got.header;
        let named =
            [("down", CookieOf::Down(to)), ("up", CookieOf::Up(to)), ("echoed", CookieOf::Echoed)];
        let cookie = named.into_iter().find(|(_, of)| self.cookie(to, *of) == header.cookie);
        let lease = self.script.peers[to].lease;
        let is_right = match self.integrity(lease) {
            Integrity::Crc32c => got.is_sealed,
            _ => got.has_good_checksum && got.crc == 0,
        };
        let known = self.group_for(to, &Fields::default());
        format!(
            "{} < {} flags {} job {} row {} generation {} type {} {} exponent {} count {} cookie {} \
             from {} to {} {} {}",
            self.script.peers[to].name,
            got.text(),
            flag_names(header.flags),
            header.job.0,
            header.group.row(),
            i32::from(header.group.generation()) - i32::from(known.generation()),
            header.element_type,
            header.operation,
            header.exponent,
            header.count,
            cookie.map_or("other", |(name, _)| name),
            got.udp.source,
            got.udp.target,
            if is_right { "intact" } else { "broken" },
            got.bytes_behind,
        )
    }
}
