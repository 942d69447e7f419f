// Uses a server through Jedis, as applications in Java do: publish/subscribe, transactions and blocking commands, in both
// protocol versions. The arguments are the server's host and port.

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.exceptions.JedisDataException;

public class Main {
    /** Long enough for any reply of a server that works, on a busy machine. */
    static final int PATIENCE_MS = 20_000;

    interface Case {
        void run(Jedis client) throws Exception;
    }

    record Named(String name, Case run) {}

    static HostAndPort address;
    static RedisProtocol protocol;

    static Jedis connect() {
        return new Jedis(address, DefaultJedisClientConfig.builder().protocol(protocol)
                .timeoutMillis(PATIENCE_MS).blockingSocketTimeoutMillis(PATIENCE_MS).build());
    }

    static void equal(Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            throw new AssertionError("expected " + expected + ", got " + got);
        }
    }

    static void messages(Jedis client) throws Exception {
        BlockingQueue<String> events = new ArrayBlockingQueue<>(100);
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                events.add("subscribe " + channel + " " + count);
            }

            @Override
            public void onMessage(String channel, String message) {
                events.add(channel + " " + message);
            }

            @Override
            public void onPSubscribe(String pattern, int count) {
                events.add("psubscribe " + pattern + " " + count);
            }

            @Override
            public void onPMessage(String pattern, String channel, String message) {
                events.add(pattern + " " + channel + " " + message);
            }
        };
        Jedis subscriber = connect();
        CompletableFuture<Void> end = CompletableFuture.runAsync(() -> subscriber.subscribe(listener, "news"));
        equal(events.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "subscribe news 1");
        listener.psubscribe("n*");
        equal(events.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "psubscribe n* 2");
        equal(client.publish("news", "hello"), 2L);
        equal(events.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "news hello");
        equal(events.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), "n* news hello");
        listener.unsubscribe();
        listener.punsubscribe();
        end.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        equal(subscriber.ping(), "PONG");
        subscriber.close();
    }

    static void transaction(Jedis client) {
        var transaction = client.multi();
        transaction.set("a", "1");
        var sum = transaction.incrBy("a", 4);
        transaction.rpush("list", "x", "y");
        equal(transaction.exec(), List.of("OK", 5L, 2L));
        equal(sum.get(), 5L);
        var discarded = client.multi();
        discarded.set("a", "2");
        discarded.discard();
        equal(client.get("a"), "5");
    }

    /** A transaction fails when another client has changed what it watches, and its repetition does not. */
    static void watched(Jedis client) {
        client.set("counter", "0");
        try (Jedis other = connect()) {
            for (boolean isDisturbed : new boolean[] {true, false}) {
                client.watch("counter");
                long next = Long.parseLong(client.get("counter")) + 1;
                if (isDisturbed) {
                    other.incr("counter");
                }
                var transaction = client.multi();
                transaction.set("counter", Long.toString(next));
                equal(transaction.exec(), isDisturbed ? null : List.of("OK"));
            }
        }
        equal(client.get("counter"), "2");
    }

    static void failing(Jedis client) {
        var transaction = client.multi();
        transaction.set("text", "x");
        transaction.incr("text");
        transaction.get("text");
        List<Object> replies = new ArrayList<>(transaction.exec());
        Object error = replies.remove(1);
        equal(error instanceof JedisDataException, true);
        equal(((JedisDataException) error).getMessage().startsWith("ERR value is not an integer"), true);
        equal(replies, List.of("OK", "x"));
    }

    static void blocking(Jedis client) throws Exception {
        try (Jedis waiter = connect()) {
            long id = waiter.clientId();
            var element = CompletableFuture.supplyAsync(() -> waiter.blpop(0, "jobs"));
            while (!client.clientList(id).contains("cmd=blpop")) {
                Thread.onSpinWait();
            }
            equal(client.rpush("jobs", "job"), 1L);
            equal(element.get(PATIENCE_MS, TimeUnit.MILLISECONDS), List.of("jobs", "job"));
            equal(waiter.blpop(0.01, "jobs"), null);
        }
    }

    public static void main(String[] arguments) {
        address = new HostAndPort(arguments[0], Integer.parseInt(arguments[1]));
        List<Named> cases = List.of(
                new Named("messages reach channels and patterns", Main::messages),
                new Named("a transaction is executed as one", Main::transaction),
                new Named("a transaction fails when what it watches has changed", Main::watched),
                new Named("errors inside of a transaction are those of their commands", Main::failing),
                new Named("a client that blocks is served", Main::blocking));
        for (RedisProtocol version : RedisProtocol.values()) {
            protocol = version;
            for (Named test : cases) {
                try (Jedis client = connect()) {
                    client.flushAll();
                    test.run().run(client);
                } catch (Throwable error) {
                    System.err.println("Jedis, " + version + ": " + test.name());
                    error.printStackTrace();
                    System.exit(1);
                }
            }
        }
        System.out.println("Jedis: " + cases.size() + " cases in both protocol versions");
        System.exit(0);
    }
}
