//! CLIENT TRACKING and its relatives.

use tierce_wire::number;
use tierce_wire::resp::Rest;

use super::client::on_off;
use crate::caller::Tracking;
use crate::error::CommandError;
use crate::pipeline::{Context, Done};
use crate::pubsub::{Redirect, Subscriptions, Tracker, TrackingMode};

/// Arguments of CLIENT TRACKING.
#[derive(Default)]
struct Options<'a> {
    redirect: Option<Redirect>,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    skips_own: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(ctx: &Context<'_, '_>, args: Rest<'a>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(word) = args.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"redirect" => {
                    let id = args.next().ok_or(CommandError::SYNTAX)?;
                    options.set_redirect(ctx, id)?;
                }
                b"bcast" => options.broadcast = true,
                b"optin" => options.opt_in = true,
                b"optout" => options.opt_out = true,
                b"noloop" => options.skips_own = true,
                b"prefix" => options.prefixes.push(args.next().ok_or(CommandError::SYNTAX)?),
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(options)
    }

    fn set_redirect(&mut self, ctx: &Context<'_, '_>, id: &[u8]) -> Result<(), CommandError> {
        if self.redirect.is_some() {
            return Err(CommandError::new(
                "ERR A client can only redirect to a single other client",
            ));
        }
        let id = number::parse_i64(id).ok_or(CommandError::NOT_AN_INTEGER)?;
        let client = u64::try_from(id).ok().and_then(|id| ctx.kernel.clients.get(id));
        let client = client
            .ok_or(CommandError::new("ERR The client ID you want redirect to does not exist"))?;
        self.redirect = Some(Redirect::to(&client));
        Ok(())
    }

    /// Returns the resulting tracker, if the options fit together and with the current tracking.
    fn resolve(
        self,
        before: Option<&Subscriptions>,
    ) -> Result<(Tracker, Vec<&'a [u8]>), CommandError> {
        const OTHER_MODE: CommandError = CommandError::new(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        );
        const OTHER_OPTION: CommandError = CommandError::new(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        );
        if !self.broadcast && !self.prefixes.is_empty() {
            return Err(CommandError::new("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        let old = before.and_then(Subscriptions::tracker);
        if old.is_some_and(|old| (old.mode == TrackingMode::Broadcast) != self.broadcast) {
            return Err(OTHER_MODE);
        }
        if self.broadcast && (self.opt_in || self.opt_out) {
            return Err(CommandError::new("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.opt_in && self.opt_out {
            return Err(CommandError::new("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        match old.map(|old| old.mode) {
            Some(TrackingMode::OptOut) if self.opt_in => return Err(OTHER_OPTION),
            Some(TrackingMode::OptIn) if self.opt_out => return Err(OTHER_OPTION),
            _ => {}
        }
        if self.broadcast {
            check_overlaps(before, &self.prefixes)?;
        }
        let mode = match (self.broadcast, self.opt_in, self.opt_out) {
            (true, ..) => TrackingMode::Broadcast,
            (_, true, _) => TrackingMode::OptIn,
            (_, _, true) => TrackingMode::OptOut,
            _ => TrackingMode::Read,
        };
        let Self { redirect, skips_own, prefixes, .. } = self;
        let caching = old.is_some_and(|old| old.caching);
        Ok((Tracker { mode, skips_own, redirect, caching, is_broken: false }, prefixes))
    }
}

/// Checks that no prefix begins with another one, so that clients get one message for a key.
fn check_overlaps(before: Option<&Subscriptions>, prefixes: &[&[u8]]) -> Result<(), CommandError> {
    let overlapping = overlapping(prefixes);
    for (index, prefix) in prefixes.iter().enumerate() {
        if let Some(old) = before.and_then(|before| before.overlapping_prefix(prefix)) {
            return Err(overlap(prefix, "an existing", old));
        }
        // An overlap with an earlier prefix was reported there.
        if overlapping[index]
            && let Some(other) =
                prefixes[index + 1..].iter().find(|other| overlap_each_other(prefix, other))
        {
            return Err(overlap(prefix, "another provided", other));
        }
    }
    Ok(())
}

fn overlap_each_other(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns for each prefix if it overlaps with another one. After sorting, prefixes follow those that they begin
/// with.
fn overlapping(prefixes: &[&[u8]]) -> Vec<bool> {
    let mut sorted: Vec<usize> = (0..prefixes.len()).collect();
    sorted.sort_by_key(|index| prefixes[*index]);
    let mut overlapping = vec![false; prefixes.len()];
    let mut shortest = None;
    for index in sorted {
        match shortest {
            Some(other) if prefixes[index].starts_with(prefixes[other]) => {
                (overlapping[index], overlapping[other]) = (true, true);
            }
            _ => shortest = Some(index),
        }
    }
    overlapping
}

fn overlap(prefix: &[u8], with: &str, other: &[u8]) -> CommandError {
    let (prefix, other) = (String::from_utf8_lossy(prefix), String::from_utf8_lossy(other));
    CommandError::text(format!(
        "ERR Prefix '{prefix}' overlaps with {with} prefix '{other}'. Prefixes for a single client must not overlap."
    ))
}

pub(super) fn track(ctx: &mut Context<'_, '_>, [state]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let options = Options::parse(ctx, options)?;
    let pubsub = &ctx.kernel.pubsub;
    if on_off(state)? {
        if options.broadcast && ctx.kernel.loading.is_on() {
            // The loaded keys would all be sent as changes.
            return Err(CommandError::LOADING);
        }
        let (tracker, prefixes) = options.resolve(ctx.caller.subscriptions())?;
        ctx.caller.track(pubsub, tracker, &prefixes);
    } else {
        ctx.caller.end_tracking(pubsub);
    }
    ctx.guard.adopt_broadcast();
    ctx.reply.ok();
    Ok(())
}

pub(super) fn caching(ctx: &mut Context<'_, '_>, [state]: [&[u8]; 1]) -> Done {
    let Some(mode) = ctx.caller.tracker().map(|tracker| tracker.mode) else {
        return Err(CommandError::new(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    match state.to_ascii_lowercase().as_slice() {
        b"yes" if mode == TrackingMode::OptIn => {}
        b"no" if mode == TrackingMode::OptOut => {}
        b"yes" => {
            return Err(CommandError::new(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        b"no" => {
            return Err(CommandError::new(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        _ => return Err(CommandError::SYNTAX),
    }
    ctx.caller.set_caching(true);
    ctx.reply.ok();
    Ok(())
}

pub(super) fn get_redir(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.int(redirect_of(ctx.caller.tracking().as_ref()));
    Ok(())
}

/// Returns the redirection: 0 for none, -1 for clients that do not track keys.
fn redirect_of(tracking: Option<&Tracking>) -> i64 {
    let redirect =
        |tracking: &Tracking| tracking.tracker.redirect.as_ref().map_or(0, |to| to.id as i64);
    tracking.map_or(-1, redirect)
}

pub(super) fn tracking_info(ctx: &mut Context<'_, '_>) -> Done {
    let tracking = ctx.caller.tracking();
    let flags = flags_of(tracking.as_ref().map(|tracking| &tracking.tracker));
    ctx.reply.map(3);
    ctx.reply.bulk(b"flags");
    ctx.reply.set(flags.len());
    flags.iter().for_each(|flag| ctx.reply.bulk(flag.as_bytes()));
    ctx.reply.bulk(b"redirect");
    ctx.reply.int(redirect_of(tracking.as_ref()));
    ctx.reply.bulk(b"prefixes");
    let prefixes = tracking.map(|tracking| tracking.prefixes).unwrap_or_default();
    ctx.reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| ctx.reply.bulk(prefix));
    Ok(())
}

fn flags_of(tracker: Option<&Tracker>) -> Vec<&'static str> {
    let Some(tracker) = tracker else { return vec!["off"] };
    let mut flags = vec!["on"];
    flags.extend(match tracker.mode {
        TrackingMode::Read => None,
        TrackingMode::OptIn => Some("optin"),
        TrackingMode::OptOut => Some("optout"),
        TrackingMode::Broadcast => Some("bcast"),
    });
    // A flag of CLIENT CACHING does not apply to a mode that was set later.
    match tracker.mode {
        TrackingMode::OptIn if tracker.caching => flags.push("caching-yes"),
        TrackingMode::OptOut if tracker.caching => flags.push("caching-no"),
        _ => {}
    }
    if tracker.skips_own {
        flags.push("noloop");
    }
    if tracker.is_broken {
        flags.push("broken_redirect");
    }
    flags
}
