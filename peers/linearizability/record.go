package main

import (
	"fmt"
	"math/rand"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Seconds after which a client that waits for an element gives up: long enough for some to be served.
const patience = "0.01"

// Recorder collects the calls of all clients.
type Recorder struct {
	mutex   sync.Mutex
	begun   time.Time
	history []porcupine.Operation
}

func (r *Recorder) now() int64 { return time.Since(r.begun).Nanoseconds() }

func (r *Recorder) add(call Call, begun, ended int64, reply string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	operation := porcupine.Operation{ClientId: call.client, Input: call, Call: begun, Output: reply, Return: ended}
	r.history = append(r.history, operation)
}

// pendingResult is a command that had no reply.
type pendingResult struct {
	call  Call
	begun int64
}

// Client makes calls at random.
type Client struct {
	number   int
	random   *rand.Rand
	recorder *Recorder
	// For requests and their replies.
	connection *Connection
	// Gets results of commands that never block.
	receiver   *Connection
	receiverID int
	// The commands that have no result yet, by their number.
	pending map[int]pendingResult
	// Results that came before it was known that their command has no reply.
	results map[int]result
	numbers int
	mutex   sync.Mutex
	arrived *sync.Cond
	failure error
}

// result is what came later, and when.
type result struct {
	reply string
	at    int64
}

// empty removes all data. While a server loads its own, it refuses that.
func empty(control *Connection) error {
	for {
		reply, err := control.ask([]string{"FLUSHALL"})
		if err != nil {
			return err
		}
		refusal, refused := reply.(error)
		if !refused {
			return nil
		}
		if !strings.HasPrefix(refusal.Error(), "LOADING") {
			return refusal
		}
	}
}

// record runs all clients, and returns what they have seen.
func record(address string, seed int64, clients, calls int) ([]porcupine.Operation, error) {
	control, err := connect(address)
	if err != nil {
		return nil, err
	}
	defer control.socket.Close()
	if err := empty(control); err != nil {
		return nil, err
	}
	recorder := &Recorder{begun: time.Now()}
	all := make([]*Client, clients)
	for number := range all {
		all[number], err = newClient(address, seed, number, recorder)
		if err != nil {
			return nil, err
		}
		defer all[number].close()
	}
	failures := make([]error, clients)
	var group sync.WaitGroup
	for number, client := range all {
		group.Add(1)
		go func(number int, client *Client) {
			defer group.Done()
			failures[number] = client.run(calls)
		}(number, client)
	}
	group.Wait()
	for _, failure := range failures {
		if failure != nil {
			return nil, failure
		}
	}
	history := recorder.history
	sort.Slice(history, func(a, b int) bool { return history[a].Call < history[b].Call })
	return history, nil
}

func newClient(address string, seed int64, number int, recorder *Recorder) (*Client, error) {
	connection, err := connect(address)
	if err != nil {
		return nil, err
	}
	receiver, err := connect(address)
	if err != nil {
		return nil, err
	}
	if _, err := receiver.ask([]string{"CLIENT", "ACCEPTNB", "ON"}); err != nil {
		return nil, err
	}
	id, err := receiver.ask([]string{"CLIENT", "ID"})
	if err != nil {
		return nil, err
	}
	client := &Client{
		number:     number,
		random:     rand.New(rand.NewSource(seed<<8 + int64(number))),
		recorder:   recorder,
		connection: connection,
		receiver:   receiver,
		receiverID: id.(int),
		pending:    map[int]pendingResult{},
		results:    map[int]result{},
	}
	client.arrived = sync.NewCond(&client.mutex)
	go client.receive()
	return client, nil
}

func (c *Client) close() {
	c.connection.socket.Close()
	c.receiver.socket.Close()
}

// receive collects results until the connection is closed.
func (c *Client) receive() {
	for {
		message, err := c.receiver.read()
		at := c.recorder.now()
		c.mutex.Lock()
		if err != nil {
			c.failure = err
			c.arrived.Broadcast()
			c.mutex.Unlock()
			return
		}
		parts := message.(Push)
		c.results[parts[2].(int)] = result{show(parts[3]), at}
		c.arrived.Broadcast()
		c.mutex.Unlock()
	}
}

// run makes calls, and then waits for the results that are still to come.
func (c *Client) run(calls int) error {
	for made := 0; made < calls; made++ {
		var err error
		switch c.random.Intn(8) {
		case 0, 1:
			err = c.transaction()
		case 2:
			err = c.watched()
		case 3:
			err = c.nonblocking()
		default:
			err = c.one(c.command(true))
		}
		if err != nil {
			return err
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for number, pending := range c.pending {
		for {
			if came, isThere := c.results[number]; isThere {
				c.recorder.add(pending.call, pending.begun, came.at, came.reply)
				break
			}
			if c.failure != nil {
				return c.failure
			}
			c.arrived.Wait()
		}
	}
	return nil
}

// command returns one at random, which may wait for an element.
func (c *Client) command(mayWait bool) []string {
	key := func(kind string) string { return fmt.Sprintf("%s%d", kind, c.random.Intn(2)) }
	value := fmt.Sprint(c.random.Intn(1000))
	choices := 12
	if mayWait {
		choices += 4
	}
	switch c.random.Intn(choices) {
	case 0:
		return []string{"SET", key("s"), value}
	case 1, 2:
		return []string{"MSET", "s0", value, "s1", value}
	case 3, 4:
		return []string{"MGET", "s0", "s1"}
	case 5:
		return []string{"RENAME", key("s"), key("s")}
	case 6, 7:
		return []string{"RPUSH", key("l"), value}
	case 8:
		return []string{"LMOVE", key("l"), key("l"), "LEFT", "RIGHT"}
	case 9:
		return []string{"SADD", key("m"), fmt.Sprint(c.random.Intn(3))}
	case 10:
		return []string{"SMOVE", key("m"), key("m"), fmt.Sprint(c.random.Intn(3))}
	case 11:
		return []string{[]string{"LRANGE", "SMEMBERS"}[c.random.Intn(2)]}
	case 12, 13:
		return []string{"BLPOP", "l0", "l1", patience}
	case 14:
		return []string{"BRPOP", "l1", patience}
	default:
		return []string{"BLMOVE", "l0", "l1", "LEFT", "RIGHT", patience}
	}
}

// complete adds the arguments of a command that only reads.
func (c *Client) complete(words []string) []string {
	key := fmt.Sprint(c.random.Intn(2))
	switch {
	case len(words) > 1:
		return words
	case words[0] == "LRANGE":
		return []string{"LRANGE", "l" + key, "0", "-1"}
	}
	return []string{"SMEMBERS", "m" + key}
}

func (c *Client) one(words []string) error {
	words = c.complete(words)
	begun := c.recorder.now()
	reply, err := c.connection.ask(words)
	if err != nil {
		return err
	}
	call := Call{c.number, [][]string{words}, false}
	c.recorder.add(call, begun, c.recorder.now(), show(reply))
	return nil
}

// transaction sends some commands between MULTI and EXEC.
func (c *Client) transaction() error {
	commands := make([][]string, 2+c.random.Intn(3))
	for index := range commands {
		commands[index] = c.complete(c.command(false))
	}
	return c.execute(commands)
}

func (c *Client) execute(commands [][]string) error {
	requests := append([][]string{{"MULTI"}}, commands...)
	requests = append(requests, []string{"EXEC"})
	begun := c.recorder.now()
	if err := c.connection.send(requests...); err != nil {
		return err
	}
	var reply any
	var err error
	for range requests {
		if reply, err = c.connection.read(); err != nil {
			return err
		}
	}
	call := Call{c.number, commands, true}
	c.recorder.add(call, begun, c.recorder.now(), show(reply))
	return nil
}

// watched reads a key that it watches, and then changes it unless somebody else has.
func (c *Client) watched() error {
	key := fmt.Sprintf("s%d", c.random.Intn(2))
	if err := c.one([]string{"WATCH", key}); err != nil {
		return err
	}
	if err := c.one([]string{"GET", key}); err != nil {
		return err
	}
	return c.execute([][]string{{"SET", key, fmt.Sprint(c.random.Intn(1000))}, {"MGET", "s0", "s1"}})
}

// nonblocking sends a command that never blocks. The reply to the PING behind it shows whether it has a reply.
func (c *Client) nonblocking() error {
	to := fmt.Sprint(c.receiverID)
	words := [][]string{
		{"NBLPOP", "l0", "l1", patience, to},
		{"NBRPOP", "l1", patience, to},
		{"NBLMOVE", "l1", "l0", "LEFT", "RIGHT", patience, to},
	}[c.random.Intn(3)]
	call := Call{c.number, [][]string{words}, false}
	begun := c.recorder.now()
	if err := c.connection.send(words, []string{"PING"}); err != nil {
		return err
	}
	reply, err := c.connection.read()
	if err != nil {
		return err
	}
	if reply == "PONG" {
		c.numbers++
		c.mutex.Lock()
		c.pending[c.numbers] = pendingResult{call, begun}
		c.mutex.Unlock()
		return nil
	}
	c.recorder.add(call, begun, c.recorder.now(), show(reply))
	_, err = c.connection.read()
	return err
}
