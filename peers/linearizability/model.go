package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Call is what a client asked for: one command, or all commands of a transaction.
type Call struct {
	// The client, whose WATCH concerns its own transactions.
	client int
	// One command, or those between MULTI and EXEC.
	commands [][]string
	// They were sent between MULTI and EXEC.
	isTransaction bool
}

// State is what the server holds. It is never changed: a step makes a new one.
type State struct {
	strings map[string]string
	lists   map[string][]string
	sets    map[string]map[string]bool
	// The keys that clients watch, and whether one of them has changed.
	watches map[int]map[string]bool
	dirty   map[int]bool
}

func newState() *State {
	return &State{
		map[string]string{}, map[string][]string{}, map[string]map[string]bool{},
		map[int]map[string]bool{}, map[int]bool{},
	}
}

func (s *State) clone() *State {
	other := newState()
	for key, value := range s.strings {
		other.strings[key] = value
	}
	for key, list := range s.lists {
		other.lists[key] = append([]string(nil), list...)
	}
	for key, set := range s.sets {
		members := map[string]bool{}
		for member := range set {
			members[member] = true
		}
		other.sets[key] = members
	}
	for client, keys := range s.watches {
		watched := map[string]bool{}
		for key := range keys {
			watched[key] = true
		}
		other.watches[client] = watched
	}
	for client := range s.dirty {
		other.dirty[client] = true
	}
	return other
}

// String is the same for states that are the same: fmt prints maps in the order of their keys.
func (s *State) String() string {
	return fmt.Sprint(s.strings, s.lists, s.sets, s.watches, s.dirty)
}

// touch notes a change of a key.
func (s *State) touch(key string) {
	for client, keys := range s.watches {
		if keys[key] {
			s.dirty[client] = true
		}
	}
}

func (s *State) setList(key string, list []string) {
	s.touch(key)
	if len(list) == 0 {
		delete(s.lists, key)
	} else {
		s.lists[key] = list
	}
}

func (s *State) pop(key string, isLeft bool) (string, bool) {
	list := s.lists[key]
	if len(list) == 0 {
		return "", false
	}
	at := 0
	if !isLeft {
		at = len(list) - 1
	}
	element := list[at]
	rest := append(append([]string(nil), list[:at]...), list[at+1:]...)
	s.setList(key, rest)
	return element, true
}

// run executes a command, and returns its reply as show has it.
func (s *State) run(client int, words []string) string {
	switch name := words[0]; name {
	case "SET":
		s.touch(words[1])
		s.strings[words[1]] = words[2]
		return "OK"
	case "MSET":
		for at := 1; at < len(words); at += 2 {
			s.touch(words[at])
			s.strings[words[at]] = words[at+1]
		}
		return "OK"
	case "GET":
		return s.get(words[1])
	case "MGET":
		values := make([]string, 0, len(words))
		for _, key := range words[1:] {
			values = append(values, s.get(key))
		}
		return bracketed(values)
	case "RENAME":
		value, isThere := s.strings[words[1]]
		if !isThere {
			return "ERR no such key"
		}
		if words[1] == words[2] {
			return "OK"
		}
		s.touch(words[1])
		s.touch(words[2])
		delete(s.strings, words[1])
		s.strings[words[2]] = value
		return "OK"
	case "RPUSH":
		s.setList(words[1], append(append([]string(nil), s.lists[words[1]]...), words[2:]...))
		return fmt.Sprint(len(s.lists[words[1]]))
	case "LRANGE":
		return bracketed(s.lists[words[1]])
	case "LPOP":
		element, isThere := s.pop(words[1], true)
		if !isThere {
			return "nothing"
		}
		return element
	case "BLPOP", "NBLPOP", "BRPOP", "NBRPOP":
		isLeft := strings.Contains(name, "BL")
		for _, key := range keysOf(words) {
			if element, isThere := s.pop(key, isLeft); isThere {
				return bracketed([]string{key, element})
			}
		}
		return "nothing"
	case "LMOVE", "BLMOVE", "NBLMOVE":
		element, isThere := s.pop(words[1], true)
		if !isThere {
			return "nothing"
		}
		s.setList(words[2], append(append([]string(nil), s.lists[words[2]]...), element))
		return element
	case "SADD":
		if s.sets[words[1]][words[2]] {
			return "0"
		}
		s.add(words[1], words[2])
		return "1"
	case "SMOVE":
		if !s.sets[words[1]][words[3]] {
			return "0"
		}
		s.touch(words[1])
		delete(s.sets[words[1]], words[3])
		if len(s.sets[words[1]]) == 0 {
			delete(s.sets, words[1])
		}
		if !s.sets[words[2]][words[3]] {
			s.add(words[2], words[3])
		}
		return "1"
	case "SMEMBERS":
		members := make([]string, 0)
		for member := range s.sets[words[1]] {
			members = append(members, member)
		}
		sort.Strings(members)
		return bracketed(members)
	case "WATCH":
		if s.watches[client] == nil {
			s.watches[client] = map[string]bool{}
		}
		s.watches[client][words[1]] = true
		return "OK"
	}
	panic("the model does not know " + words[0])
}

func (s *State) get(key string) string {
	if value, isThere := s.strings[key]; isThere {
		return value
	}
	return "nothing"
}

func (s *State) add(key, member string) {
	s.touch(key)
	if s.sets[key] == nil {
		s.sets[key] = map[string]bool{}
	}
	s.sets[key][member] = true
}

// keysOf returns the keys of a call of BLPOP or NBLPOP, whose last arguments are others.
func keysOf(words []string) []string {
	others := 1
	if strings.HasPrefix(words[0], "NB") {
		others = 2
	}
	return words[1 : len(words)-others]
}

// execute executes a call, and returns its reply.
func (s *State) execute(call Call) string {
	if !call.isTransaction {
		return s.run(call.client, call.commands[0])
	}
	isDirty := s.dirty[call.client]
	delete(s.watches, call.client)
	delete(s.dirty, call.client)
	if isDirty {
		return "nothing"
	}
	replies := make([]string, 0, len(call.commands))
	for _, words := range call.commands {
		replies = append(replies, s.run(call.client, words))
	}
	return bracketed(replies)
}

func bracketed(items []string) string {
	return "[" + strings.Join(items, " ") + "]"
}

// show is a reply in words.
func show(reply any) string {
	switch reply := reply.(type) {
	case Nothing:
		return "nothing"
	case error:
		return reply.Error()
	case []any:
		items := make([]string, 0, len(reply))
		for _, item := range reply {
			items = append(items, show(item))
		}
		return bracketed(items)
	}
	return fmt.Sprint(reply)
}

var model = porcupine.Model{
	Init: func() any { return newState() },
	Step: func(state, input, output any) (bool, any) {
		next := state.(*State).clone()
		return next.execute(input.(Call)) == output.(string), next
	},
	Equal: func(a, b any) bool { return a.(*State).String() == b.(*State).String() },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprint(input.(Call).commands, " -> ", output)
	},
	DescribeState: func(state any) string { return state.(*State).String() },
}
