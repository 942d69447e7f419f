//! Putting elements in order.

use std::cmp::Ordering;

use tierce_wire::number;

use super::Elements;
use super::options::SortOptions;
use super::pattern::Lookup;
use crate::error::CommandError;

/// What an element is sorted by.
enum Weight {
    Number(f64),
    /// What BY found.
    Text(Option<Vec<u8>>),
    /// The bytes of the element.
    Element,
}

/// Sorts, and leaves what LIMIT leaves.
pub(super) fn sort(
    elements: Elements,
    options: &SortOptions<'_>,
    lookup: &mut Lookup<'_, '_, '_>,
) -> Result<Vec<Vec<u8>>, CommandError> {
    if elements.is_final {
        return Ok(elements.all);
    }
    let mut weighted = elements
        .all
        .into_iter()
        .map(|element| Ok((weight(&element, options, lookup)?, element)))
        .collect::<Result<Vec<_>, CommandError>>()?;
    let range = options.range(weighted.len());
    let compare = |a: &(Weight, Vec<u8>), b: &(Weight, Vec<u8>)| {
        let order = order(a, b);
        if options.is_descending { order.reverse() } else { order }
    };
    // Only those that are wanted have to be sorted, once they are in front.
    if range.end > 0 && range.end < weighted.len() {
        weighted.select_nth_unstable_by(range.end - 1, compare);
        weighted.truncate(range.end);
    }
    weighted.sort_by(compare);
    weighted.truncate(range.end);
    Ok(weighted.drain(range.start..).map(|(_, element)| element).collect())
}

fn weight(
    element: &[u8],
    options: &SortOptions<'_>,
    lookup: &mut Lookup<'_, '_, '_>,
) -> Result<Weight, CommandError> {
    // A set that is stored is sorted even if BY says otherwise: its own order is by chance.
    let by = options.by.as_ref().filter(|_| !options.keeps_order);
    match by {
        _ if options.keeps_order => Ok(Weight::Element),
        None if options.is_alpha => Ok(Weight::Element),
        None => number_of(element),
        Some(by) => match lookup.find(by, element)? {
            found if options.is_alpha => Ok(Weight::Text(found)),
            Some(text) => number_of(&text),
            None => Ok(Weight::Number(0.0)),
        },
    }
}

/// The number that a text stands for, which may begin with spaces. An empty one is zero. What stands
/// behind a zero byte does not count, as in Redis.
fn number_of(text: &[u8]) -> Result<Weight, CommandError> {
    const NO_NUMBER: CommandError =
        CommandError::new("ERR One or more scores can't be converted into double");
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Ok(Weight::Number(0.0));
    }
    number::parse_f64(text.trim_ascii_start()).map(Weight::Number).ok_or(NO_NUMBER)
}

/// By weight; those of equal numbers by their bytes.
fn order((a, first): &(Weight, Vec<u8>), (b, second): &(Weight, Vec<u8>)) -> Ordering {
    match (a, b) {
        (Weight::Number(a), Weight::Number(b)) => {
            a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| first.cmp(second))
        }
        (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
        _ => first.cmp(second),
    }
}
