package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sort"
	"strconv"
	"strings"
)

// Nothing is a reply without a value.
type Nothing struct{}

// Push is a message that answers no request.
type Push []any

// Connection speaks RESP3 with the server.
type Connection struct {
	socket net.Conn
	reader *bufio.Reader
}

func connect(address string) (*Connection, error) {
	socket, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &Connection{socket, bufio.NewReader(socket)}
	if err := c.send([]string{"HELLO", "3"}); err != nil {
		return nil, err
	}
	_, err = c.read()
	return c, err
}

// send sends requests in one write.
func (c *Connection) send(requests ...[]string) error {
	var text strings.Builder
	for _, words := range requests {
		fmt.Fprintf(&text, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	_, err := io.WriteString(c.socket, text.String())
	return err
}

// ask sends a request and reads its reply.
func (c *Connection) ask(request []string) (any, error) {
	if err := c.send(request); err != nil {
		return nil, err
	}
	return c.read()
}

// read reads a reply or a push message: a string, an int, an error, a list, or nothing.
func (c *Connection) read() (any, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("not a reply: %q", line)
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return fmt.Errorf("%s", rest), nil
	case '_':
		return Nothing{}, nil
	}
	number, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("not a reply: %q", line)
	}
	switch kind {
	case ':':
		return number, nil
	case '$':
		text := make([]byte, number+2)
		_, err := io.ReadFull(c.reader, text)
		return string(text[:number]), err
	case '*':
		return c.items(number)
	case '~':
		items, err := c.items(number)
		sort.Slice(items, func(a, b int) bool { return show(items[a]) < show(items[b]) })
		return items, err
	case '>':
		items, err := c.items(number)
		return Push(items), err
	case '%':
		return c.items(2 * number)
	}
	return nil, fmt.Errorf("not a reply: %q", line)
}

func (c *Connection) items(count int) ([]any, error) {
	items := make([]any, count)
	for index := range items {
		item, err := c.read()
		if err != nil {
			return nil, err
		}
		items[index] = item
	}
	return items, nil
}
