import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Produces and consumes in one process: time from send to the acknowledgement's answer. */
final class Latency {
    private static final int VALUE_BYTES = 256;

    private final Options options;
    private final long origin = System.nanoTime();
    private volatile long total = Long.MAX_VALUE;
    /** What is measured begins when traffic has flowed for a while since the first record arrived. */
    private volatile long from = Long.MAX_VALUE;
    private volatile long until = Long.MAX_VALUE;

    Latency(Options options) {
        this.options = options;
    }

    void run() throws Exception {
        int rate = options.number("rate", 0);
        int warm = options.number("warm", 5);
        int seconds = options.number("seconds", 10);
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(options.shareConsumer());
        consumer.subscribe(List.of(options.text("topic", "")));
        Thread producing = new Thread(() -> produce(rate));
        producing.start();
        // Twice what is expected: who was late may send more at once.
        long[] delivered = new long[rate * seconds * 2 + 100];
        long[] acknowledged = new long[delivered.length];
        int samples = 0;
        Hash marks = new Hash();
        while (marks.settled < total) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
            if (records.isEmpty()) {
                continue;
            }
            long at = System.nanoTime() - origin;
            if (until == Long.MAX_VALUE) {
                from = at + TimeUnit.SECONDS.toNanos(warm);
                until = from + TimeUnit.SECONDS.toNanos(seconds);
            }
            long[] sent = new long[records.count()];
            int index = 0;
            for (ConsumerRecord<byte[], byte[]> record : records) {
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                marks.settle(record.partition(), record.offset(), 0);
                sent[index++] = ByteBuffer.wrap(record.value()).order(ByteOrder.LITTLE_ENDIAN).getLong();
            }
            Client.commit(consumer);
            long answered = System.nanoTime() - origin;
            for (long stamp : sent) {
                if (stamp >= from && stamp < until) {
                    if (samples == 0) {
                        Client.say("first");
                    }
                    delivered[samples] = at - stamp;
                    acknowledged[samples++] = answered - stamp;
                }
            }
        }
        producing.join();
        Client.say(String.format("done {\"samples\":%d,\"again\":%d,%s,%s}", samples, marks.again,
                percentiles("", acknowledged, samples), percentiles("delivered_", delivered, samples)));
    }

    private static String percentiles(String kind, long[] times, int samples) {
        long[] sorted = Arrays.copyOf(times, samples);
        Arrays.sort(sorted);
        StringBuilder text = new StringBuilder();
        String[] names = {"p50", "p99", "p999", "max"};
        double[] parts = {0.5, 0.99, 0.999, 1};
        for (int i = 0; i < names.length; i++) {
            double ms = samples == 0 ? 0 : sorted[Math.min((int) (samples * parts[i]), samples - 1)] / 1e6;
            text.append(String.format(Locale.ROOT, "%s\"%s%s_ms\":%.4f", i == 0 ? "" : ",", kind, names[i], ms));
        }
        return text.toString();
    }

    /** Sends records at a rate, each with the time when it was sent, and at last says how many those were. */
    private void produce(int rate) {
        Properties properties = options.properties();
        properties.put("acks", "all");
        properties.put("linger.ms", "0");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        int partitions = options.number("partitions", 4);
        int perTick = (rate + 999) / 1000;
        long tick = TimeUnit.SECONDS.toNanos(1) * perTick / rate;
        long due = System.nanoTime();
        int index = 0;
        while (System.nanoTime() - origin < until) {
            sleepUntil(due);
            due += tick;
            for (int i = 0; i < perTick; i++, index++) {
                send(producer, index % partitions, System.nanoTime() - origin);
            }
        }
        total = index + 1L;
        send(producer, 0, 0);
        producer.flush();
    }

    private void send(KafkaProducer<byte[], byte[]> producer, int partition, long stamp) {
        ByteBuffer value = ByteBuffer.allocate(VALUE_BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(0, stamp);
        producer.send(new ProducerRecord<>(options.text("topic", ""), partition, null, value.array()));
    }

    private static void sleepUntil(long due) {
        try {
            long left = due - System.nanoTime();
            if (left > 0) {
                TimeUnit.NANOSECONDS.sleep(left);
            }
        } catch (InterruptedException stop) {
            throw new IllegalStateException(stop);
        }
    }
}
