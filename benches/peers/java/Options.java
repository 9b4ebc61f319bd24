import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** The command line, with the names and defaults of ../client/src/args.rs. */
final class Options {
    private final Map<String, String> given = new HashMap<>();

    Options(String[] arguments) {
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            given.put(arguments[i], arguments[i + 1]);
        }
    }

    String text(String name, String otherwise) {
        return given.getOrDefault("--" + name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(text(name, Integer.toString(otherwise)));
    }

    /** What consumers and producers have in common. */
    Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", text("servers", ""));
        String bytes = "org.apache.kafka.common.serialization.ByteArray";
        properties.put("key.deserializer", bytes + "Deserializer");
        properties.put("value.deserializer", bytes + "Deserializer");
        properties.put("key.serializer", bytes + "Serializer");
        properties.put("value.serializer", bytes + "Serializer");
        return properties;
    }

    Properties consumer() {
        Properties properties = properties();
        properties.put("group.id", text("group", ""));
        properties.put("max.poll.records", number("poll", 500));
        return properties;
    }

    Properties shareConsumer() {
        Properties properties = consumer();
        properties.put("share.acknowledgement.mode", "explicit");
        return properties;
    }

    /** Settled for good: 1 accept, 2 release, 3 reject. */
    static int decide(boolean mixed, long offset, int deliveryCount) {
        long rest = offset % 100;
        if (mixed && rest < 8 && deliveryCount <= 1) {
            return 2;
        }
        return mixed && rest >= 98 ? 3 : 1;
    }
}
