//! A variable number of arguments, in a form in which no access can fail.

use super::args::Args;

/// Arguments of a call, at least `MIN` of them. There is no indexing: an argument that may be missing is an
/// `Option`.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a, const MIN: usize = 0>(Args<'a>);

impl<'a> Rest<'a> {
    /// Returns all of `args`.
    #[inline]
    pub fn new(args: Args<'a>) -> Rest<'a> {
        Rest(args)
    }

    /// Returns the arguments if there are at least `MIN`.
    #[inline]
    pub fn with_at_least<const MIN: usize>(self) -> Option<Rest<'a, MIN>> {
        (self.len() >= MIN).then_some(Rest(self.0))
    }
}

impl<'a, const MIN: usize> Rest<'a, MIN> {
    /// Returns the arguments, for functions that take a whole call.
    #[inline]
    pub fn as_args(self) -> Args<'a> {
        self.0
    }

    /// Returns the number of arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the argument at `index`, or `None` behind the last one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.0.get(index)
    }

    /// Returns all of them in order.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone {
        self.0.iter()
    }

    /// Returns those from `index` on; empty if there are fewer.
    #[inline]
    pub fn from(self, index: usize) -> Rest<'a> {
        Rest(self.0.from(index))
    }

    /// Drops the guarantee of a minimal number.
    #[inline]
    pub fn any(self) -> Rest<'a> {
        Rest(self.0)
    }

    /// Returns the arguments, if there are exactly `N`.
    #[inline]
    pub fn exactly<const N: usize>(self) -> Option<[&'a [u8]; N]> {
        self.split_first::<N>().and_then(|(first, rest)| rest.is_empty().then_some(first))
    }

    /// Returns the first `N` and those behind them, if there are so many.
    #[inline]
    pub fn split_first<const N: usize>(self) -> Option<([&'a [u8]; N], Rest<'a>)> {
        self.0.split_first_chunk().map(|(first, rest)| (first, Rest(rest)))
    }

    /// Returns the first `count` and those behind them, if there are so many.
    #[inline]
    pub fn split_at(self, count: usize) -> Option<(Rest<'a>, Rest<'a>)> {
        self.0.split_at_checked(count).map(|(left, right)| (Rest(left), Rest(right)))
    }

    /// Returns the last one and those before it, if there is one.
    #[inline]
    pub fn split_last(self) -> Option<(Rest<'a>, &'a [u8])> {
        let (before, last) = self.split_at(self.len().checked_sub(1)?)?;
        Some((before, last.get(0)?))
    }

    /// Returns all of them in groups of `N`, if nothing is left over.
    #[inline]
    pub fn groups<const N: usize>(
        self,
    ) -> Option<impl ExactSizeIterator<Item = [&'a [u8]; N]> + DoubleEndedIterator + Clone> {
        const { assert!(N > 0) };
        self.len().is_multiple_of(N).then(|| self.0.chunks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedArgs;

    fn owned(words: &[&str]) -> OwnedArgs {
        let mut args = OwnedArgs::new();
        words.iter().for_each(|word| args.push(word.as_bytes()).expect("a short call"));
        args
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let args = owned(&["a", "b", "c"]);
        for first in 0..5 {
            let (rest, len) =
                (Rest::new(args.as_args()).from(first), 3_usize.saturating_sub(first));
            assert_eq!((rest.len(), rest.is_empty(), rest.iter().len()), (len, len == 0, len));
            assert_eq!(rest.get(len), None);
            assert_eq!(rest.split_first::<2>().is_some(), len >= 2);
            assert_eq!(rest.exactly::<2>().is_some(), len == 2);
            assert_eq!(rest.split_last().map(|(before, _)| before.len()), len.checked_sub(1));
            assert!(rest.split_at(usize::MAX).is_none());
            assert_eq!(
                rest.groups::<2>().map(|pairs| pairs.len()),
                len.is_multiple_of(2).then_some(len / 2)
            );
            assert_eq!(rest.with_at_least::<1>().is_some(), len > 0);
        }
    }

    #[test]
    fn parts_are_in_order() {
        let args = owned(&["a", "b", "c", "d"]);
        let rest = Rest::new(args.as_args());
        assert_eq!(rest.exactly::<4>(), Some([&b"a"[..], b"b", b"c", b"d"]));
        let (first, others) = rest.split_first::<1>().unwrap();
        assert_eq!((first, others.get(0)), ([&b"a"[..]], Some(&b"b"[..])));
        let (before, last) = rest.split_last().unwrap();
        assert_eq!((before.len(), last), (3, &b"d"[..]));
        let pairs: Vec<_> = rest.groups::<2>().unwrap().collect();
        assert_eq!(pairs, [[&b"a"[..], b"b"], [&b"c"[..], b"d"]]);
        assert!(rest.groups::<2>().unwrap().rev().map(|[name, _]| name).eq([&b"c"[..], b"a"]));
    }
}
