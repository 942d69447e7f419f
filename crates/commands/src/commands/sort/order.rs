//! Sorting of elements.

use std::cmp::Ordering;
use std::slice;

use tierce_wire::number;

use super::Elements;
use super::options::SortOptions;
use super::pattern::Lookup;
use crate::error::CommandError;

/// Sort key of an element.
enum Weight {
    Number(f64),
    /// Value found by BY.
    Text(Option<Vec<u8>>),
    /// Bytes of the element.
    Element,
}

/// Sorts the elements and applies LIMIT.
pub(super) fn sort(
    elements: Elements,
    options: &SortOptions<'_>,
    lookup: &mut Lookup<'_, '_, '_>,
) -> Result<Vec<Vec<u8>>, CommandError> {
    if elements.is_final {
        return Ok(elements.all);
    }
    // A set that is stored is sorted despite BY, since its own order is random.
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
    // Only the wanted elements are sorted, after they are moved to the front.
    if range.end > 0 && range.end < weighted.len() {
        weighted.select_nth_unstable_by(range.end - 1, compare);
        weighted.truncate(range.end);
    }
    weighted.sort_by(compare);
    weighted.truncate(range.end);
    Ok(weighted.drain(range.start..).map(|(_, element)| element).collect())
}

/// Returns the sort key without BY.
fn weight(element: &[u8], options: &SortOptions<'_>) -> Result<Weight, CommandError> {
    match options.keeps_order || options.is_alpha {
        true => Ok(Weight::Element),
        false => number_of(element),
    }
}

/// Returns the sort key for a value found by BY.
fn weight_found(found: Option<Vec<u8>>, options: &SortOptions<'_>) -> Result<Weight, CommandError> {
    match found {
        found if options.is_alpha => Ok(Weight::Text(found)),
        Some(text) => number_of(&text),
        None => Ok(Weight::Number(0.0)),
    }
}

/// Parses a number, which may begin with spaces. An empty text is zero. As in Redis, text after a
/// zero byte is ignored.
fn number_of(text: &[u8]) -> Result<Weight, CommandError> {
    const NO_NUMBER: CommandError =
        CommandError::new("ERR One or more scores can't be converted into double");
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Ok(Weight::Number(0.0));
    }
    number::parse_f64(text.trim_ascii_start()).map(Weight::Number).ok_or(NO_NUMBER)
}

/// Compares by sort key; equal numbers compare by the bytes of their elements.
fn order((a, first): &(Weight, Vec<u8>), (b, second): &(Weight, Vec<u8>)) -> Ordering {
    match (a, b) {
        (Weight::Number(a), Weight::Number(b)) => {
            a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| first.cmp(second))
        }
        (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
        _ => first.cmp(second),
    }
}
