//! Functions of `table` that would change a protected table, or run long without a call of the hook; and `unpack`.

use std::ffi::c_int;

use mlua_sys::{
    LUA_TFUNCTION, LUA_TNIL, LUA_TTABLE, lua_Integer, lua_State, lua_call, lua_checkstack,
    lua_gettop, lua_lessthan, lua_objlen, lua_pop, lua_pushvalue, lua_rawgeti_, lua_rawseti_,
    lua_settop, lua_toboolean, lua_type, lua_upvalueindex, luaL_checkinteger, luaL_checkstack_,
    luaL_checktype, luaL_error, luaL_optinteger,
};

use super::original::{call_original, wrap_function};
use super::protected::check_writable;
use crate::shared::work;
use crate::values::set_function;

/// Work of reading, comparing or moving an element, in bytes.
const WORK_PER_ELEMENT: usize = 16;

/// Replaces functions of the table `table` on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace(state: *mut lua_State) {
    // SAFETY: the table stays on top.
    unsafe {
        set_function(state, c"insert", insert);
        set_function(state, c"sort", sort);
        for name in [c"concat", c"remove", c"maxn", c"foreach", c"foreachi"] {
            wrap_function(state, name, walk);
        }
    }
}

/// Replaces a function of the globals on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace_unpack(state: *mut lua_State) {
    // SAFETY: the globals stay on top.
    unsafe { set_function(state, c"unpack", unpack) };
}

/// `unpack`. The function of Lua counts the elements in an `int`, which overflows if the bounds are far apart, and
/// then writes beyond its stack. Bounds are C's `int`, as there.
unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the arguments checked first, and with room for the results.
    unsafe {
        luaL_checktype(state, 1, LUA_TTABLE);
        let first = luaL_optinteger(state, 2, 1) as c_int;
        let last = luaL_optinteger(state, 3, lua_objlen(state, 1) as lua_Integer) as c_int;
        if first > last {
            return 0;
        }
        let count = c_int::try_from(i64::from(last) - i64::from(first) + 1).unwrap_or(c_int::MAX);
        if lua_checkstack(state, count) == 0 {
            return luaL_error(state, c"too many results to unpack".as_ptr());
        }
        for place in first..=last {
            lua_rawgeti_(state, 1, place);
        }
        count
    }
}

/// Wraps functions of Lua that walk through their table without a call of the hook.
unsafe extern "C-unwind" fn walk(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; nothing is owned here.
    unsafe {
        if lua_type(state, 1) == LUA_TTABLE {
            work(state, lua_objlen(state, 1).saturating_mul(WORK_PER_ELEMENT));
        }
        call_original(state, lua_upvalueindex(1))
    }
}

unsafe extern "C-unwind" fn insert(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the arguments checked first.
    unsafe {
        luaL_checktype(state, 1, LUA_TTABLE);
        check_writable(state, 1);
        let end = (lua_objlen(state, 1) as c_int).wrapping_add(1);
        let place = match lua_gettop(state) {
            2 => end,
            3 => {
                let place = luaL_checkinteger(state, 2) as c_int;
                move_up(state, place, end.max(place));
                place
            }
            _ => return luaL_error(state, c"wrong number of arguments to 'insert'".as_ptr()),
        };
        lua_rawseti_(state, 1, place);
        0
    }
}

/// Moves the elements from `place` to before `end` up by one. The place may be far below the first.
unsafe fn move_up(state: *mut lua_State, place: c_int, end: c_int) {
    let mut to = end;
    while to > place {
        // SAFETY: one value is pushed and taken; nothing is owned here.
        unsafe {
            lua_rawgeti_(state, 1, to - 1);
            lua_rawseti_(state, 1, to);
            work(state, WORK_PER_ELEMENT);
        }
        to -= 1;
    }
}

unsafe extern "C-unwind" fn sort(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the arguments checked first.
    unsafe {
        luaL_checktype(state, 1, LUA_TTABLE);
        let last = lua_objlen(state, 1) as c_int;
        luaL_checkstack_(state, 40, c"".as_ptr());
        if lua_type(state, 2) > LUA_TNIL {
            luaL_checktype(state, 2, LUA_TFUNCTION);
        }
        lua_settop(state, 2);
        sort_range(state, 1, last);
        0
    }
}

/// Sorts the elements from `first` to `last` of the table at index 1, by the function at index 2 or by `<`.
///
/// This is quicksort with the median of three, with the same order of comparisons and swaps as Lua 5.1: scripts can
/// see which of two equal elements comes first.
unsafe fn sort_range(state: *mut lua_State, mut first: c_int, mut last: c_int) {
    while first < last {
        // SAFETY: both places are in the table; what is pushed is taken.
        let pivot = unsafe {
            order(state, first, last);
            if last - first == 1 {
                return;
            }
            let middle = first + (last - first) / 2;
            if !order(state, first, middle) {
                order(state, middle, last);
            }
            if last - first == 2 {
                return;
            }
            partition(state, first, middle, last)
        };
        // The loop continues with the longer part, so the depth of the recursion is logarithmic.
        let shorter = if pivot - first < last - pivot {
            let shorter = (first, pivot - 1);
            first = pivot + 1;
            shorter
        } else {
            let shorter = (pivot + 1, last);
            last = pivot - 1;
            shorter
        };
        // SAFETY: as above.
        unsafe { sort_range(state, shorter.0, shorter.1) };
    }
}

/// Swaps the elements at two places if the second one is less; `true` if it swapped.
unsafe fn order(state: *mut lua_State, low: c_int, high: c_int) -> bool {
    // SAFETY: two elements are pushed, and both are taken.
    unsafe {
        lua_rawgeti_(state, 1, low);
        lua_rawgeti_(state, 1, high);
        let swap = is_less(state, -1, -2);
        if swap {
            put_two(state, low, high);
        } else {
            lua_pop(state, 2);
        }
        swap
    }
}

/// Puts the element on top at `top_position`, and the one below it at `below_place`.
unsafe fn put_two(state: *mut lua_State, top_position: c_int, below_place: c_int) {
    // SAFETY: two elements are on the stack.
    unsafe {
        lua_rawseti_(state, 1, top_position);
        lua_rawseti_(state, 1, below_place);
    }
}

/// Moves the elements that are less than the middle one before it, and the others after it. Returns its place. The
/// first element is not greater than it, and the last one not less.
unsafe fn partition(state: *mut lua_State, first: c_int, middle: c_int, last: c_int) -> c_int {
    // SAFETY: the pivot is on the stack until the end, with an element from each side above it.
    unsafe {
        lua_rawgeti_(state, 1, middle);
        lua_pushvalue(state, -1);
        lua_rawgeti_(state, 1, last - 1);
        put_two(state, middle, last - 1);
        let (mut low, mut high) = (first, last - 1);
        loop {
            low += 1;
            lua_rawgeti_(state, 1, low);
            while is_less(state, -1, -2) {
                check_order(state, low <= last);
                lua_pop(state, 1);
                low += 1;
                lua_rawgeti_(state, 1, low);
            }
            high -= 1;
            lua_rawgeti_(state, 1, high);
            while is_less(state, -3, -1) {
                check_order(state, high >= first);
                lua_pop(state, 1);
                high -= 1;
                lua_rawgeti_(state, 1, high);
            }
            if high < low {
                lua_pop(state, 3);
                break;
            }
            put_two(state, low, high);
        }
        lua_rawgeti_(state, 1, last - 1);
        lua_rawgeti_(state, 1, low);
        put_two(state, last - 1, low);
        low
    }
}

/// Raises an error if an inconsistent order function would make the sort leave the table.
unsafe fn check_order(state: *mut lua_State, is_inside: bool) {
    if !is_inside {
        // SAFETY: nothing is owned here.
        unsafe { luaL_error(state, c"invalid order function for sorting".as_ptr()) };
    }
}

/// Returns true if one value on the stack is ordered before the other.
unsafe fn is_less(state: *mut lua_State, left: c_int, right: c_int) -> bool {
    // SAFETY: the indexes are relative to the top, from where they are copied; nothing is owned here.
    unsafe {
        work(state, WORK_PER_ELEMENT);
        if lua_type(state, 2) == LUA_TNIL {
            return lua_lessthan(state, left, right) != 0;
        }
        lua_pushvalue(state, 2);
        lua_pushvalue(state, left - 1);
        lua_pushvalue(state, right - 2);
        lua_call(state, 2, 1);
        let is_less = lua_toboolean(state, -1) != 0;
        lua_pop(state, 1);
        is_less
    }
}
