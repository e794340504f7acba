//! The order of the hit log: the site, day, visitor and second that each row belongs to.
//!
//! ```text
//! site 1                                    site 2
//! day 1              day 2                  day 1
//! visitor 3, 8, 9    visitor 3, 5, 9        visitor 1, 7
//! hits    2  1  5            1  1  2                4  1
//! ```
//!
//! Rows are sorted by site, day, visitor and time. A few sites have most of the rows, most visits consist
//! of a single hit, some of a hundred, and visitors return on other days.

use super::random::{mix, unit};

/// Number of sites.
const SITES: u64 = 600;
/// Number of days in the log.
const DAYS: u64 = 31;
/// Maximum number of hits of a visit.
const MAX_HITS: u64 = 250;
/// Approximate number of rows per visitor of a site.
const ROWS_PER_VISITOR: u64 = 12;
/// Visits begin early enough to end on the same day.
const LAST_START_SECOND: u64 = 80_000;

/// The entities that a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hit {
    /// Position in the table.
    pub(crate) row: u64,
    pub(crate) site: u64,
    /// Days since the log began.
    pub(crate) day: u64,
    /// Ascending within a site and day.
    pub(crate) visitor: u64,
    /// Second of the day, never decreasing within a visit.
    pub(crate) second: u64,
    /// Position within the visit.
    pub(crate) hit: u64,
}

/// Generates hits in the table's order.
pub(super) struct Visits {
    rows: u64,
    site_ends: Vec<u64>,
    site: u64,
    next: Hit,
    hits_left: u64,
}

impl Visits {
    pub(super) fn new(rows: u64) -> Self {
        let next = Hit { row: 0, site: 0, day: 0, visitor: 0, second: 0, hit: 0 };
        Self { rows, site_ends: site_ends(rows), site: 0, next, hits_left: 0 }
    }

    /// Starts the visit that the next row belongs to.
    fn begin_visit(&mut self) {
        let row = self.next.row;
        while self.site_ends[self.site as usize] <= row {
            self.site += 1;
        }
        let site = self.site;
        let start = if site == 0 { 0 } else { self.site_ends[site as usize - 1] };
        let rows = self.site_ends[site as usize] - start;
        let day = (row - start) * DAYS / rows;
        let (day_start, day_end) = ((day * rows).div_ceil(DAYS), ((day + 1) * rows).div_ceil(DAYS));
        let (at, day_rows) = (row - start - day_start, day_end - day_start);

        let visitors = (rows / ROWS_PER_VISITOR).max(day_rows);
        let stride = (1_u64 << 62) / visitors;
        let rank = at * visitors / day_rows;
        let visitor = rank * stride + mix(site << 32 | rank) % stride;

        let hash = mix(mix(row) ^ visitor);
        let length = (unit(hash).max(1e-4).powf(-0.7) as u64).min(MAX_HITS);
        self.hits_left = length.min(day_rows - at);
        let second = mix(hash) % LAST_START_SECOND;
        self.next = Hit { row, site: site + 1, day, visitor, second, hit: 0 };
    }
}

impl Iterator for Visits {
    type Item = Hit;

    fn next(&mut self) -> Option<Hit> {
        if self.next.row == self.rows {
            return None;
        }
        if self.hits_left == 0 {
            self.begin_visit();
        }
        let hit = self.next;
        self.hits_left -= 1;
        self.next.row += 1;
        self.next.hit += 1;
        self.next.second = (hit.second + mix(hit.row) % 45).min(86_399);
        Some(hit)
    }
}

/// The end of the rows of each site: shares decrease with the rank, and ranks are shuffled.
fn site_ends(rows: u64) -> Vec<u64> {
    let weight = |site: u64| 1.0 / (1.0 + (mix(site) % SITES) as f64).powf(0.9);
    let total: f64 = (0..SITES).map(weight).sum();
    let mut sum = 0.0;
    let mut ends: Vec<u64> = (0..SITES)
        .map(|site| {
            sum += weight(site);
            ((sum / total * rows as f64) as u64).min(rows)
        })
        .collect();
    ends[SITES as usize - 1] = rows;
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_sorted_by_site_day_visitor_and_time() {
        let hits: Vec<Hit> = Visits::new(50_000).collect();
        assert_eq!(hits.len(), 50_000);
        let key = |hit: &Hit| (hit.site, hit.day, hit.visitor, hit.second);
        assert!(hits.is_sorted_by_key(key));
        assert!(hits.iter().enumerate().all(|(row, hit)| hit.row == row as u64 && hit.day < DAYS));
    }

    #[test]
    fn some_visits_are_long_and_some_visitors_return() {
        let hits: Vec<Hit> = Visits::new(200_000).collect();
        assert!(hits.iter().any(|hit| hit.hit > 50));
        let mut days: Vec<(u64, u64)> = hits.iter().map(|hit| (hit.visitor, hit.day)).collect();
        days.sort_unstable();
        days.dedup();
        let visitor_days = days.len();
        days.dedup_by_key(|(visitor, _)| *visitor);
        assert!(days.len() < visitor_days);
    }
}
