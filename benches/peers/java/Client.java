import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * Kafka's own share consumer for the benches, and its plain consumer as the reference outside share groups. Modes:
 * fast (commitAsync), commit (commitSync), plain (a consumer group). See ../client/src/lib.rs for what clients say.
 */
public final class Client {
    private static final Duration WAIT = Duration.ofSeconds(1);

    private final Options options;
    private final long wanted;
    private final AtomicLong settled = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final List<KafkaShareConsumer<byte[], byte[]>> consumers = new ArrayList<>();
    private volatile long first;

    private Client(Options options) {
        this.options = options;
        this.wanted = options.number("records", 0);
    }

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        if (options.number("rate", 0) > 0) {
            new Latency(options).run();
        } else if (options.text("mode", "fast").equals("plain")) {
            new Client(options).plain();
        } else {
            new Client(options).drain();
        }
        System.in.readAllBytes();
        // Nothing that is closed in order belongs to the measurement.
        Runtime.getRuntime().halt(0);
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private void drain() throws Exception {
        int members = options.number("members", 1);
        for (int i = 0; i < members; i++) {
            KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(options.shareConsumer());
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    failed.incrementAndGet();
                    error.printStackTrace();
                }
            });
            consumer.subscribe(List.of(options.text("topic", "")));
            consumers.add(consumer);
        }
        say("ready");
        ExecutorService threads = Executors.newFixedThreadPool(members);
        List<Future<Hash>> running = new ArrayList<>();
        for (KafkaShareConsumer<byte[], byte[]> consumer : consumers) {
            running.add(threads.submit(() -> consume(consumer)));
        }
        Hash sum = new Hash();
        for (Future<Hash> member : running) {
            Hash one = member.get();
            sum.settled += one.settled;
            sum.again += one.again;
            sum.checksum += one.checksum;
        }
        done(sum);
    }

    private void hasRecords() {
        synchronized (this) {
            if (first == 0) {
                first = System.nanoTime();
                say("first");
            }
        }
    }

    private void done(Hash sum) {
        double seconds = (System.nanoTime() - first) / 1e9;
        if (failed.get() > 0) {
            throw new KafkaException(failed.get() + " acknowledgements failed");
        }
        say(String.format("done {\"records\":%d,\"again\":%d,\"checksum\":\"%016x\",\"seconds\":%.6f}",
                sum.settled, sum.again, sum.checksum, seconds));
    }

    private Hash consume(KafkaShareConsumer<byte[], byte[]> consumer) throws Exception {
        boolean mixed = Boolean.parseBoolean(options.text("mixed", "false"));
        boolean sync = options.text("mode", "fast").equals("commit");
        int handlerMs = options.number("handler-ms", 0);
        ExecutorService handlers = Executors.newFixedThreadPool(options.number("in-flight", 64));
        Hash hash = new Hash();
        while (settled.get() < wanted) {
            ConsumerRecords<byte[], byte[]> records;
            try {
                records = consumer.poll(WAIT);
            } catch (WakeupException enough) {
                break;
            }
            if (records.isEmpty()) {
                continue;
            }
            hasRecords();
            long before = hash.settled;
            if (handlerMs > 0) {
                handle(handlers, records, handlerMs);
            }
            for (ConsumerRecord<byte[], byte[]> record : records) {
                long one = Hash.record(record.timestamp(), record.key(), record.value(), record.headers());
                int how = Options.decide(mixed, record.offset(), record.deliveryCount().orElse((short) 1));
                consumer.acknowledge(record, AcknowledgeType.forId((byte) how));
                if (how != 2) {
                    hash.settle(record.partition(), record.offset(), one);
                }
            }
            if (sync) {
                commit(consumer);
            } else {
                consumer.commitAsync();
            }
            if (settled.addAndGet(hash.settled - before) >= wanted) {
                consumers.stream().filter(other -> other != consumer).forEach(KafkaShareConsumer::wakeup);
            }
        }
        commit(consumer);
        handlers.shutdown();
        return hash;
    }

    /** The consumer belongs to one thread, so all handlers of a poll end before its records are acknowledged. */
    private static void handle(ExecutorService handlers, ConsumerRecords<byte[], byte[]> records, int ms)
            throws Exception {
        List<Future<?>> running = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> ignored : records) {
            running.add(handlers.submit(() -> {
                Thread.sleep(ms);
                return null;
            }));
        }
        for (Future<?> handler : running) {
            handler.get();
        }
    }

    static void commit(KafkaShareConsumer<byte[], byte[]> consumer) {
        consumer.commitSync().forEach((TopicIdPartition partition, java.util.Optional<KafkaException> error) -> {
            if (error.isPresent()) {
                throw error.get();
            }
        });
    }

    private void plain() {
        var properties = options.consumer();
        properties.put("group.protocol", "consumer");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        Hash hash = new Hash();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
        consumer.subscribe(List.of(options.text("topic", "")));
        say("ready");
        while (hash.settled < wanted) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(WAIT);
            if (records.isEmpty()) {
                continue;
            }
            hasRecords();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                long one = Hash.record(record.timestamp(), record.key(), record.value(), record.headers());
                hash.settle(record.partition(), record.offset(), one);
            }
            consumer.commitAsync();
        }
        consumer.commitSync();
        done(hash);
    }
}
