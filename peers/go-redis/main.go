// Command go-redis uses a server through go-redis, as applications in Go do: publish/subscribe and transactions, in both
// protocol versions. The argument is the server's address.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Long enough for any reply of a server that works, on a busy machine.
const patience = 20 * time.Second

func main() {
	cases := []struct {
		name string
		run  func(context.Context, *redis.Client) error
	}{
		{"messages reach channels and patterns", messages},
		{"a transaction is executed as one", transaction},
		{"counters that are watched lose nothing", watched},
		{"errors inside of a transaction are those of their commands", failing},
		{"a client that blocks is served", blocking},
	}
	for _, protocol := range []int{2, 3} {
		for _, test := range cases {
			if err := check(os.Args[1], protocol, test.run); err != nil {
				fmt.Fprintf(os.Stderr, "go-redis, RESP%d: %s: %v\n", protocol, test.name, err)
				os.Exit(1)
			}
		}
	}
	fmt.Printf("go-redis: %d cases in both protocol versions\n", len(cases))
}

func check(address string, protocol int, run func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol})
	defer client.Close()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return run(ctx, client)
}

func equal(got, expected any) error {
	if fmt.Sprint(got) != fmt.Sprint(expected) {
		return fmt.Errorf("expected %v, got %v", expected, got)
	}
	return nil
}

func messages(ctx context.Context, client *redis.Client) error {
	channel := client.Subscribe(ctx, "news")
	defer channel.Close()
	pattern := client.PSubscribe(ctx, "n*")
	defer pattern.Close()
	shard := client.SSubscribe(ctx, "news")
	defer shard.Close()
	all := []*redis.PubSub{channel, pattern, shard}
	for _, subscription := range all {
		// That it has begun.
		if _, err := subscription.Receive(ctx); err != nil {
			return err
		}
	}
	if err := equal(client.Publish(ctx, "news", "one").Val(), 2); err != nil {
		return err
	}
	if err := equal(client.SPublish(ctx, "news", "two").Val(), 1); err != nil {
		return err
	}
	for index, expected := range []string{"one", "one", "two"} {
		message, err := all[index].ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		if err := equal(message.Payload, expected); err != nil {
			return err
		}
	}
	if err := equal(client.PubSubNumSub(ctx, "news").Val(), map[string]int64{"news": 1}); err != nil {
		return err
	}
	if err := channel.Ping(ctx); err != nil {
		return err
	}
	return channel.Unsubscribe(ctx, "news")
}

func transaction(ctx context.Context, client *redis.Client) error {
	replies, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "k", 1, 0)
		pipe.Incr(ctx, "k")
		pipe.HSet(ctx, "hash", "field", "v")
		pipe.Get(ctx, "k")
		return nil
	})
	if err != nil {
		return err
	}
	return equal(replies[3].(*redis.StringCmd).Val(), "2")
}

func watched(ctx context.Context, client *redis.Client) error {
	const clients, steps = 4, 25
	add := func(tx *redis.Tx) error {
		value, err := tx.Get(ctx, "counter").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "counter", value+1, 0)
			return nil
		})
		return err
	}
	failures := make([]error, clients)
	var group sync.WaitGroup
	for number := range failures {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			for step := 0; step < steps && failures[number] == nil; {
				switch err := client.Watch(ctx, add, "counter"); {
				case err == nil:
					step++
				case !errors.Is(err, redis.TxFailedErr):
					failures[number] = err
				}
			}
		}(number)
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return equal(client.Get(ctx, "counter").Val(), clients*steps)
}

func failing(ctx context.Context, client *redis.Client) error {
	client.Set(ctx, "text", "v", 0)
	replies, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "text")
		pipe.Set(ctx, "after", "v", 0)
		return nil
	})
	if err := equal(err, "ERR value is not an integer or out of range"); err != nil {
		return err
	}
	return equal(replies[1].Err(), nil)
}

func blocking(ctx context.Context, client *redis.Client) error {
	result := make(chan *redis.StringSliceCmd)
	go func() { result <- client.BLPop(ctx, patience, "list") }()
	if err := client.RPush(ctx, "list", "a").Err(); err != nil {
		return err
	}
	return equal((<-result).Val(), []string{"list", "a"})
}
