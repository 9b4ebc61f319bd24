import java.time.Duration;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group, until it is killed.
 *
 * <p>Arguments: bootstrap servers, group, topic, and what it does: {@code accept} polls and accepts;
 * {@code hold} holds what the first poll brings. It prints how many records each poll brought.
 */
public final class ShareMember {
    public static void main(String[] args) throws Exception {
        boolean holds = args[3].equals("hold");
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[1],
            "client.id", "java",
            "fetch.max.wait.ms", "20000",
            "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(config)) {
            consumer.subscribe(java.util.List.of(args[2]));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(30));
                System.out.println(records.count());
                while (holds && !records.isEmpty()) {
                    Thread.sleep(1000);
                }
            }
        }
    }
}
