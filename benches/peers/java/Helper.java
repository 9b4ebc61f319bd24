import com.sun.tools.attach.VirtualMachine;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * The harness's hand on the cluster: one process that stays, and answers a line for each line. Arguments: bootstrap
 * servers, process ids of the brokers.
 *
 *   topic NAME PARTITIONS                      ok
 *   fill NAME PARTITIONS RECORDS BYTES CODEC   checksum of what was written
 *   group NAME                                 ok; the group begins at the earliest record
 *   delete NAME                                ok
 *   counters                                   {"ShareFetch":1,"ShareAcknowledge":2,"ShareGroupHeartbeat":3}
 */
public final class Helper {
    private static final String[] REQUESTS = {"ShareFetch", "ShareAcknowledge", "ShareGroupHeartbeat"};
    /** Of the first record; the others follow by a millisecond each. */
    private static final long TIMESTAMP = 1_700_000_000_000L;

    private final Options options;
    private final Admin admin;
    private final List<MBeanServerConnection> brokers = new ArrayList<>();

    private Helper(String[] arguments) throws Exception {
        options = new Options(new String[] {"--servers", arguments[0]});
        Properties properties = options.properties();
        admin = Admin.create(properties);
        for (int i = 1; i < arguments.length; i++) {
            VirtualMachine machine = VirtualMachine.attach(arguments[i]);
            JMXServiceURL address = new JMXServiceURL(machine.startLocalManagementAgent());
            machine.detach();
            brokers.add(JMXConnectorFactory.connect(address).getMBeanServerConnection());
        }
    }

    public static void main(String[] arguments) throws Exception {
        Helper helper = new Helper(arguments);
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = helper.answer(line.split(" "));
            } catch (Exception error) {
                answer = "error " + error;
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "topic":
                NewTopic topic = new NewTopic(words[1], Optional.of(Integer.parseInt(words[2])), Optional.empty());
                admin.createTopics(List.of(topic)).all().get();
                return "ok";
            case "fill":
                return fill(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                        Integer.parseInt(words[4]), words[5]);
            case "group":
                ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, words[1]);
                ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
                admin.incrementalAlterConfigs(
                        Map.of(group, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
                return "ok";
            case "delete":
                admin.deleteTopics(List.of(words[1])).all().get();
                return "ok";
            case "counters":
                return counters();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String counters() throws Exception {
        Map<String, Long> counts = new HashMap<>();
        for (MBeanServerConnection broker : brokers) {
            for (String request : REQUESTS) {
                ObjectName every = new ObjectName(
                        "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=" + request + ",*");
                for (ObjectName name : broker.queryNames(every, null)) {
                    counts.merge(request, (Long) broker.getAttribute(name, "Count"), Long::sum);
                }
            }
        }
        List<String> parts = new ArrayList<>();
        for (String request : REQUESTS) {
            parts.add("\"" + request + "\":" + counts.getOrDefault(request, 0L));
        }
        return "{" + String.join(",", parts) + "}";
    }

    /** Every record has a key of 8 bytes, every eighth a header; batches are as full as producers make them. */
    private String fill(String topic, int partitions, int records, int bytes, String codec) throws Exception {
        Properties properties = options.properties();
        properties.put("compression.type", codec);
        properties.put("linger.ms", "1000");
        properties.put("acks", "1");
        properties.put("buffer.memory", Integer.toString(64 << 20));
        long checksum = 0;
        long[] failed = {0};
        Words words = new Words();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (int i = 0; i < records; i++) {
                byte[] key = ByteBuffer.allocate(8).putLong(i).array();
                byte[] value = words.next(bytes);
                RecordHeaders headers = new RecordHeaders();
                if (i % 8 == 0) {
                    headers.add("trace", ByteBuffer.allocate(16).putLong(8, i).array());
                }
                long timestamp = TIMESTAMP + i;
                checksum += Hash.record(timestamp, key, value, headers);
                producer.send(new ProducerRecord<>(topic, i % partitions, timestamp, key, value, headers),
                        (metadata, error) -> failed[0] += error == null ? 0 : 1);
            }
        }
        if (failed[0] > 0) {
            throw new IllegalStateException(failed[0] + " records were not written");
        }
        return String.format("%016x", checksum);
    }

    /** Text that shrinks to about a third, the same in every run. */
    private static final class Words {
        private final byte[][] known = new byte[256][];
        private long state = 88172645463325252L;

        Words() {
            for (int i = 0; i < known.length; i++) {
                byte[] word = new byte[6];
                for (int j = 0; j < 5; j++) {
                    word[j] = (byte) ('a' + Math.floorMod(random(), 26));
                }
                word[5] = ' ';
                known[i] = word;
            }
        }

        private int random() {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            return (int) (state >>> 20);
        }

        byte[] next(int bytes) {
            byte[] value = new byte[bytes];
            for (int at = 0; at < bytes; at += 6) {
                byte[] word = known[random() & 255];
                System.arraycopy(word, 0, value, at, Math.min(6, bytes - at));
            }
            return value;
        }
    }
}
