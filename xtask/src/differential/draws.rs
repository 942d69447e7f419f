//! Results of random commands: elements of the collection, as a full read right after them shows.

use tierce_harness::Reply;

use super::stream::Call;

/// Returns the command that reads the whole collection that this one draws from.
pub(super) fn full_read(call: &Call) -> Option<Call> {
    let words: &[&[u8]] = match call.first()?.to_ascii_uppercase().as_slice() {
        b"SRANDMEMBER" => &[b"SMEMBERS"],
        b"HRANDFIELD" => &[b"HGETALL"],
        b"ZRANDMEMBER" => &[b"ZRANGE", b"0", b"-1", b"WITHSCORES"],
        _ => return None,
    };
    let mut read: Call = words.iter().map(|word| word.to_vec()).collect();
    read.insert(1, call.get(1)?.clone());
    Some(read)
}

/// Returns true if replies to a random command have equal form and size. An element may only occur twice if a
/// negative number asks for that.
pub(super) fn is_alike(call: &Call, tested: &Reply, reference: &Reply) -> bool {
    let (Some(ours), Some(theirs)) = (elements(call, tested), elements(call, reference)) else {
        return std::mem::discriminant(tested) == std::mem::discriminant(reference);
    };
    let mut distinct = ours.clone();
    distinct.sort();
    distinct.dedup();
    ours.len() == theirs.len() && (repeats(call) || distinct.len() == ours.len())
}

/// Returns true if everything that `call` has drawn is in the reply to the `next` command, provided that is the full
/// read.
pub(super) fn is_from(call: &Call, drawn: &[u8], next: &Call, all: &[u8]) -> bool {
    if full_read(call).as_ref() != Some(next) {
        return true;
    }
    let decode = |bytes| Reply::decode(bytes).expect("a whole reply").0;
    let (drawn, all) = (decode(drawn), decode(all));
    let drawn = elements(call, &drawn).unwrap_or_else(|| match &drawn {
        single @ Reply::Bulk(_) => vec![vec![single.clone()]],
        _ => Vec::new(),
    });
    let is_set = call[0].eq_ignore_ascii_case(b"srandmember");
    let all = match &all {
        Reply::Error(_) => return drawn.is_empty(),
        all => in_groups(all, if is_set { 1 } else { 2 }),
    };
    drawn.iter().all(|element| all.iter().any(|whole| whole.starts_with(element)))
}

/// Returns the elements of a reply to a call with a number, each with its value if that was asked for.
fn elements(call: &Call, reply: &Reply) -> Option<Vec<Vec<Reply>>> {
    let with_values =
        call.get(3).is_some_and(|option| option.to_ascii_uppercase().starts_with(b"WITH"));
    match reply {
        Reply::Array(_) | Reply::Set(_) | Reply::Map(_) => {
            Some(in_groups(reply, if with_values { 2 } else { 1 }))
        }
        _ => None,
    }
}

/// Returns the parts of an array in groups of `size`, nested arrays or not, or the pairs of a map.
pub(super) fn in_groups(reply: &Reply, size: usize) -> Vec<Vec<Reply>> {
    match reply {
        Reply::Map(pairs) => pairs.iter().map(|(a, b)| vec![a.clone(), b.clone()]).collect(),
        Reply::Array(items) if matches!(items.first(), Some(Reply::Array(_))) => {
            items.iter().map(|pair| pair.items().to_vec()).collect()
        }
        items => items.items().chunks(size).map(<[Reply]>::to_vec).collect(),
    }
}

fn repeats(call: &Call) -> bool {
    call.get(2).is_some_and(|count| count.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Call {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn elements_have_to_be_of_the_collection_and_distinct() {
        let next = call("HGETALL h");
        let all = b"*4\r\n+a\r\n+1\r\n+b\r\n+2\r\n";
        let with_values = call("HRANDFIELD h 1 WITHVALUES");
        assert!(is_from(&with_values, b"*2\r\n+b\r\n+2\r\n", &next, all));
        assert!(!is_from(&with_values, b"*2\r\n+b\r\n+1\r\n", &next, all));
        let decode = |bytes: &[u8]| Reply::decode(bytes).expect("a reply").0;
        let (once, twice) = (decode(b"*2\r\n+a\r\n+b\r\n"), decode(b"*2\r\n+a\r\n+a\r\n"));
        assert!(is_alike(&call("HRANDFIELD h 2"), &once, &once));
        assert!(!is_alike(&call("HRANDFIELD h 2"), &twice, &once));
        assert!(is_alike(&call("HRANDFIELD h -2"), &twice, &once));
    }
}
