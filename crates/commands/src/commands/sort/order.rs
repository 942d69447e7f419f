//! Putting elements in order.

use std::cmp::Ordering;
use std::slice;

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
    // A set that is stored is sorted even if BY says otherwise: its own order is by chance.
    let by = options.by.as_ref().filter(|_| !options.keeps_order);
    let all = elements.all;
    let weighted: Result<Vec<_>, CommandError> = match by {
        Some(by) => {
            let found = lookup.find_all(slice::from_ref(by), &all)?.into_iter();
            let found = found.map(|found| weight_found(found, options));
            found.zip(all).map(|(weight, element)| Ok((weight?, element))).collect()
        }
        None => all.into_iter().map(|element| Ok((weight(&element, options)?, element))).collect(),
    };
    let mut weighted = weighted?;
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

/// Without BY.
fn weight(element: &[u8], options: &SortOptions<'_>) -> Result<Weight, CommandError> {
    match options.keeps_order || options.is_alpha {
        true => Ok(Weight::Element),
        false => number_of(element),
    }
}

/// By what BY has found.
fn weight_found(found: Option<Vec<u8>>, options: &SortOptions<'_>) -> Result<Weight, CommandError> {
    match found {
        found if options.is_alpha => Ok(Weight::Text(found)),
        Some(text) => number_of(&text),
        None => Ok(Weight::Number(0.0)),
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
