//! The time zones of timestamps. The format has those of the IANA database and offsets; Arrow allows any text.

use chrono_tz::TZ_VARIANTS;

/// The zone that stands for those which the format does not have: a timestamp with a zone is the same instant in each.
pub(crate) const UTC: &str = "UTC";

/// Whether all readers know a zone; those that do not know the zone of a column refuse the whole file.
pub(crate) fn is_known(zone: &str) -> bool {
    zone.is_empty()
        || is_offset(zone)
        || TZ_VARIANTS.iter().any(|known| known.name().eq_ignore_ascii_case(zone))
}

/// Whether a zone is an offset: `+02`, `-0330`, `+05:30`.
fn is_offset(zone: &str) -> bool {
    let below = |digits: &[u8], limit: u8| match digits {
        [tens, ones] => {
            tens.is_ascii_digit() && ones.is_ascii_digit() && (tens - b'0') * 10 + (ones - b'0') < limit
        }
        _ => false,
    };
    match zone.as_bytes() {
        [b'+' | b'-', hours @ ..] if hours.len() == 2 => below(hours, 24),
        [b'+' | b'-', h1, h2, minutes @ ..] if minutes.len() == 2 => {
            below(&[*h1, *h2], 24) && below(minutes, 60)
        }
        [b'+' | b'-', h1, h2, b':', minutes @ ..] => below(&[*h1, *h2], 24) && below(minutes, 60),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_names_or_offsets() {
        let known = [
            "",
            "UTC",
            "utc",
            "Europe/Oslo",
            "europe/oslo",
            "EST",
            "Etc/GMT+5",
            "+02",
            "-0330",
            "+05:30",
            "+23:59",
        ];
        for zone in known {
            assert!(is_known(zone), "{zone}");
        }
        let unknown = [
            "Z",
            "UTC+2",
            "Nowhere/Place",
            "Europe/Oslo ",
            "posix/UTC",
            "+2",
            "+24:00",
            "+02:60",
            "+0x:00",
            "+02:00:30",
            "2",
            "+日",
        ];
        for zone in unknown {
            assert!(!is_known(zone), "{zone}");
        }
    }
}
