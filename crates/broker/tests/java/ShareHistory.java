import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What an application sees of share groups, a line per step, without times and ids: two brokers that
 * do the same print the same.
 *
 * <p>The argument: bootstrap servers. The broker has {@code group.share.min.record.lock.duration.ms=1000}.
 */
public final class ShareHistory {
    private static final Duration LONG = Duration.ofSeconds(30);
    private static final Duration SHORT = Duration.ofMillis(300);

    private final String servers;
    private final Admin admin;

    private ShareHistory(String servers) {
        this.servers = servers;
        this.admin = Admin.create(Map.of("bootstrap.servers", servers));
    }

    public static void main(String[] args) throws Exception {
        ShareHistory history = new ShareHistory(args[0]);
        history.topics();
        history.configs();
        history.explicitMode();
        history.implicitMode();
        history.renew();
        history.lateAcknowledgement();
        history.commitAsync();
        history.acquireModes();
        history.wakeup();
        history.close();
        history.deliveryLimit();
        history.readCommitted();
        history.deadLetters();
        history.latest();
        history.twoMembers();
        history.groupAdmin();
        history.admin.close();
    }

    private void topics() throws Exception {
        say("== topics");
        NewTopic orders = new NewTopic("topics.orders", 3, (short) 1).configs(Map.of("retention.bytes", "1000000"));
        attempt("create", admin.createTopics(List.of(orders)).all());
        attempt("create again", admin.createTopics(List.of(orders)).all());
        attempt("create without partitions", admin.createTopics(List.of(new NewTopic("topics.none", 0, (short) 1))).all());
        attempt("create with a bad name", admin.createTopics(List.of(new NewTopic("a/b", 1, (short) 1))).all());
        attempt("create with a bad config",
            admin.createTopics(List.of(new NewTopic("topics.bad", 1, (short) 1).configs(Map.of("retention.bytes", "many")))).all());
        attempt("create on too few brokers", admin.createTopics(List.of(new NewTopic("topics.wide", 1, (short) 3))).all());
        attempt("grow", admin.createPartitions(Map.of("topics.orders", NewPartitions.increaseTo(4))).all());
        attempt("shrink", admin.createPartitions(Map.of("topics.orders", NewPartitions.increaseTo(2))).all());
        settle();
        var described = admin.describeTopics(List.of("topics.orders")).allTopicNames().get().get("topics.orders");
        say("described " + described.name() + " internal " + described.isInternal() + " partitions "
            + described.partitions().stream().map(partition -> partition.partition() + ":" + partition.replicas().size()).toList());
        attempt("describe what isn't there", admin.describeTopics(List.of("topics.none")).allTopicNames());
        say("listed " + new TreeSet<>(admin.listTopics().names().get()));
        attempt("delete", admin.deleteTopics(List.of("topics.orders")).all());
        attempt("delete again", admin.deleteTopics(List.of("topics.orders")).all());
        say("brokers " + admin.describeCluster().nodes().get().size());
    }

    private void configs() throws Exception {
        say("== configs");
        create("configs.orders", 1);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "configs.orders");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "configs");
        attempt("topic", alter(topic, Map.of("message.timestamp.type", "LogAppendTime")));
        attempt("topic, unknown key", alter(topic, Map.of("no.such.key", "1")));
        attempt("topic, bad value", alter(topic, Map.of("message.timestamp.type", "Never")));
        attempt("topic that isn't there", alter(new ConfigResource(ConfigResource.Type.TOPIC, "configs.none"), Map.of("retention.bytes", "1")));
        attempt("group", alter(group, Map.of("share.auto.offset.reset", "earliest", "share.delivery.count.limit", "7")));
        attempt("group, unknown key", alter(group, Map.of("no.such.key", "1")));
        attempt("group, lock too short", alter(group, Map.of("share.record.lock.duration.ms", "1")));
        attempt("group, limit too high", alter(group, Map.of("share.delivery.count.limit", "11")));
        attempt("group, bad reset", alter(group, Map.of("share.auto.offset.reset", "middle")));
        attempt("group, limit below what there is", alter(group, Map.of("share.delivery.count.limit", "1")));
        attempt("group, no number", alter(group, Map.of("share.delivery.count.limit", "few")));
        attempt("group, neither true nor false", alter(group, Map.of("share.renew.acknowledge.enable", "maybe")));
        attempt("group, bad isolation", alter(group, Map.of("share.isolation.level", "none")));
        attempt("group, session below heartbeat", alter(group, Map.of("share.session.timeout.ms", "2000", "share.heartbeat.interval.ms", "15000")));
        attempt("group, dead letters of a strange name", alter(group, Map.of("errors.deadletterqueue.topic.name", "__dead")));
        settle();
        say("topic " + changed(topic));
        Map<String, String> all = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(group)).all().get().get(group).entries()) {
            if (entry.name().startsWith("share.") || entry.name().startsWith("errors.")) {
                all.put(entry.name(), entry.value() + " " + entry.source());
            }
        }
        all.forEach((name, value) -> say("group " + name + " = " + value));
        var resources = admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new ListConfigResourcesOptions()).all().get();
        say("groups with configs " + resources.stream().map(ConfigResource::name).sorted().toList());
        AlterConfigOp delete = new AlterConfigOp(new ConfigEntry("share.delivery.count.limit", null), OpType.DELETE);
        attempt("group, back to the default", admin.incrementalAlterConfigs(Map.of(group, List.of(delete))).all());
        settle();
        say("group " + changed(group));
    }

    private void explicitMode() throws Exception {
        String name = prepare("explicit", 1, Map.of());
        produce(name, 6);
        try (var consumer = consumer(name, Map.of("share.acknowledgement.mode", "explicit"))) {
            say("lock before the first poll " + consumer.acquisitionLockTimeoutMs());
            List<ConsumerRecord<String, String>> got = poll(consumer);
            say("lock " + consumer.acquisitionLockTimeoutMs());
            attempt("poll with records that nobody acknowledged", () -> consumer.poll(SHORT));
            consumer.acknowledge(got.get(0));
            consumer.acknowledge(got.get(1), AcknowledgeType.ACCEPT);
            consumer.acknowledge(got.get(2), AcknowledgeType.RELEASE);
            consumer.acknowledge(got.get(3), AcknowledgeType.REJECT);
            consumer.acknowledge(got.get(4), AcknowledgeType.REJECT);
            attempt("acknowledge twice", () -> consumer.acknowledge(got.get(4), AcknowledgeType.RELEASE));
            attempt("acknowledge by offset what could be read", () -> consumer.acknowledge(name, 0, 5, AcknowledgeType.ACCEPT));
            consumer.acknowledge(got.get(5), AcknowledgeType.ACCEPT);
            say("commit " + results(consumer.commitSync()));
            attempt("acknowledge after the commit", () -> consumer.acknowledge(got.get(0)));
            say("commit nothing " + results(consumer.commitSync()));
            List<ConsumerRecord<String, String>> again = poll(consumer);
            again.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
            say("commit " + results(consumer.commitSync()));
            say("polled " + consumer.poll(SHORT).count());
        }
        offsets(name);
    }

    private void implicitMode() throws Exception {
        String name = prepare("implicit", 2, Map.of());
        try (var consumer = consumer(name, Map.of())) {
            for (int round = 0; round < 3; round++) {
                produce(name, 5);
                List<ConsumerRecord<String, String>> got = poll(consumer);
                attempt("acknowledge in implicit mode", () -> consumer.acknowledge(got.get(0)));
                say("commit " + results(consumer.commitSync()));
            }
            produce(name, 2);
            poll(consumer);
            say("polled " + consumer.poll(SHORT).count());
        }
        offsets(name);
        try (var consumer = consumer(name, Map.of())) {
            attempt("poll without a subscription", () -> {
                consumer.unsubscribe();
                consumer.poll(SHORT);
            });
        }
    }

    private void renew() throws Exception {
        String name = prepare("renew", 1, Map.of("share.record.lock.duration.ms", "2000"));
        produce(name, 3);
        try (var consumer = consumer(name, Map.of("share.acknowledgement.mode", "explicit"));
             var other = consumer(name, Map.of("share.acknowledgement.mode", "explicit"))) {
            List<ConsumerRecord<String, String>> got = poll(consumer);
            for (int round = 0; round < 3; round++) {
                Thread.sleep(1000);
                got.forEach(record -> consumer.acknowledge(record, AcknowledgeType.RENEW));
                say("renew " + results(consumer.commitSync()));
                got = poll(consumer);
            }
            say("other polled " + other.poll(SHORT).count());
            got.forEach(consumer::acknowledge);
            say("commit " + results(consumer.commitSync()));
        }
        offsets(name);
        alter(new ConfigResource(ConfigResource.Type.GROUP, name), Map.of("share.renew.acknowledge.enable", "false")).get();
        settle();
        produce(name, 1);
        try (var consumer = consumer(name, Map.of("share.acknowledgement.mode", "explicit"))) {
            List<ConsumerRecord<String, String>> got = poll(consumer);
            got.forEach(record -> consumer.acknowledge(record, AcknowledgeType.RENEW));
            say("renew where it is off " + results(consumer.commitSync()));
        }
    }

    private void lateAcknowledgement() throws Exception {
        String name = prepare("late", 1, Map.of("share.record.lock.duration.ms", "1000"));
        produce(name, 4);
        try (var consumer = consumer(name, Map.of("share.acknowledgement.mode", "explicit"))) {
            List<ConsumerRecord<String, String>> got = poll(consumer);
            Thread.sleep(2000);
            got.forEach(consumer::acknowledge);
            say("late commit " + results(consumer.commitSync()));
            got = poll(consumer);
            got.forEach(consumer::acknowledge);
            say("commit " + results(consumer.commitSync()));
        }
        offsets(name);
    }

    private void commitAsync() throws Exception {
        String name = prepare("async", 2, Map.of());
        produce(name, 4);
        List<String> heard = new ArrayList<>();
        try (var consumer = consumer(name, Map.of("share.acknowledgement.mode", "explicit"))) {
            consumer.setAcknowledgementCommitCallback((offsets, exception) -> {
                Map<String, Set<Long>> sorted = new TreeMap<>();
                offsets.forEach((partition, set) -> sorted.put(text(partition), new TreeSet<>(set)));
                heard.add(sorted + " " + text(exception));
            });
            List<ConsumerRecord<String, String>> got = poll(consumer);
            consumer.acknowledge(got.get(0), AcknowledgeType.ACCEPT);
            consumer.acknowledge(got.get(1), AcknowledgeType.RELEASE);
            consumer.acknowledge(got.get(2), AcknowledgeType.REJECT);
            consumer.acknowledge(got.get(3), AcknowledgeType.ACCEPT);
            consumer.commitAsync();
            List<ConsumerRecord<String, String>> again = poll(consumer);
            again.forEach(consumer::acknowledge);
            consumer.commitAsync();
        }
        say("heard " + heard);
        offsets(name);
    }

    private void acquireModes() throws Exception {
        for (String mode : List.of("record_limit", "batch_optimized")) {
            String name = prepare("mode." + mode, 1, Map.of());
            produce(name, 10);
            Map<String, Object> config = Map.of("share.acquire.mode", mode, "max.poll.records", "3");
            try (var consumer = consumer(name, config)) {
                for (int left = 10; left > 0;) {
                    left -= poll(consumer).size();
                }
                say("commit " + results(consumer.commitSync()));
            }
            offsets(name);
        }
    }

    private void wakeup() throws Exception {
        String name = prepare("wakeup", 1, Map.of());
        try (var consumer = consumer(name, Map.of())) {
            consumer.wakeup();
            attempt("poll after a wakeup", () -> consumer.poll(LONG));
            Thread sleeper = new Thread(() -> {
                try {
                    Thread.sleep(500);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
                consumer.wakeup();
            });
            sleeper.start();
            attempt("poll during a wakeup", () -> consumer.poll(LONG));
            sleeper.join();
            produce(name, 2);
            poll(consumer);
            consumer.close();
            attempt("poll after the close", () -> consumer.poll(SHORT));
        }
    }

    private void close() throws Exception {
        String name = prepare("close", 1, Map.of());
        produce(name, 4);
        try (var consumer = consumer(name, Map.of("share.acknowledgement.mode", "explicit"))) {
            List<ConsumerRecord<String, String>> got = poll(consumer);
            consumer.acknowledge(got.get(0));
        }
        offsets(name);
        try (var consumer = consumer(name, Map.of())) {
            poll(consumer);
        }
        offsets(name);
        try (var consumer = consumer(name, Map.of())) {
            poll(consumer);
            say("commit " + results(consumer.commitSync()));
        }
        offsets(name);
    }

    private void deliveryLimit() throws Exception {
        String name = prepare("limit", 1, Map.of("share.delivery.count.limit", "3"));
        produce(name, 2);
        try (var consumer = consumer(name, Map.of("share.acknowledgement.mode", "explicit"))) {
            for (int deliveries = 0; deliveries < 6;) {
                List<ConsumerRecord<String, String>> got = poll(consumer);
                got.forEach(record -> consumer.acknowledge(record, AcknowledgeType.RELEASE));
                say("commit " + results(consumer.commitSync()));
                deliveries += got.size();
            }
            say("polled " + consumer.poll(SHORT).count());
        }
        offsets(name);
    }

    private void readCommitted() throws Exception {
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            String name = prepare(isolation, 1, Map.of("share.isolation.level", isolation));
            try (var producer = producer(Map.of("transactional.id", "t." + isolation))) {
                producer.initTransactions();
                for (String end : List.of("commit", "abort", "commit")) {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(name, 0, null, end)).get();
                    if (end.equals("commit")) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                }
            }
            try (var consumer = consumer(name, Map.of())) {
                for (int left = isolation.equals("read_committed") ? 2 : 3; left > 0;) {
                    left -= poll(consumer).size();
                }
                say("commit " + results(consumer.commitSync()));
                say("polled " + consumer.poll(SHORT).count());
            }
        }
    }

    private void deadLetters() throws Exception {
        create("dlq.dead", 1, Map.of("errors.deadletterqueue.group.enable", "true"));
        String name = prepare("dead", 1,
            Map.of("errors.deadletterqueue.topic.name", "dlq.dead", "errors.deadletterqueue.copy.record.enable", "true"));
        produce(name, 2);
        try (var consumer = consumer(name, Map.of("share.acknowledgement.mode", "explicit"))) {
            List<ConsumerRecord<String, String>> got = poll(consumer);
            consumer.acknowledge(got.get(0), AcknowledgeType.REJECT);
            consumer.acknowledge(got.get(1), AcknowledgeType.ACCEPT);
            say("commit " + results(consumer.commitSync()));
        }
        group("undertaker", Map.of());
        try (var consumer = new KafkaShareConsumer<String, String>(config("undertaker", Map.of()))) {
            consumer.subscribe(List.of("dlq.dead"));
            for (ConsumerRecord<String, String> record : poll(consumer)) {
                record.headers().forEach(header -> say("  " + header.key() + " = " + new String(header.value())));
            }
        }
    }

    private void latest() throws Exception {
        say("== latest");
        create("latest", 1);
        produce("latest", 3);
        Map<String, Object> config = config("latest", Map.of());
        for (String refused : List.of("auto.offset.reset", "enable.auto.commit", "isolation.level", "group.instance.id")) {
            Map<String, Object> bad = new HashMap<>(config);
            bad.put(refused, "true");
            attempt("consumer with " + refused, () -> new KafkaShareConsumer<String, String>(bad).close());
        }
        try (var consumer = new KafkaShareConsumer<String, String>(config)) {
            consumer.subscribe(List.of("latest"));
            // The group starts where the log ends at the first fetch.
            for (boolean stands = false; !stands;) {
                consumer.poll(SHORT);
                stands = admin.describeShareGroups(List.of("latest")).all().get().get("latest").members().stream()
                    .anyMatch(member -> !member.assignment().topicPartitions().isEmpty());
            }
            consumer.poll(Duration.ofSeconds(2));
            produce("latest", 1);
            poll(consumer);
        }
    }

    private void twoMembers() throws Exception {
        String name = prepare("two", 4, Map.of());
        try (var one = consumer(name, Map.of()); var two = consumer(name, Map.of())) {
            List<Integer> sizes = List.of();
            long end = System.nanoTime() + LONG.toNanos();
            while (!sizes.equals(List.of(2, 2)) && System.nanoTime() < end) {
                one.poll(SHORT);
                two.poll(SHORT);
                sizes = describe(name).stream().map(member -> member.split(",").length).sorted().toList();
            }
            say("partitions each " + sizes);
            var described = admin.describeShareGroups(List.of(name)).all().get().get(name);
            say("state " + described.groupState() + ", members " + described.members().size());
            attempt("alter offsets of a group with members", admin.alterShareGroupOffsets(name, Map.of(new TopicPartition(name, 0), 0L)).all());
            attempt("delete offsets of a group with members", admin.deleteShareGroupOffsets(name, Set.of(name)).all());
            attempt("delete a group with members", admin.deleteShareGroups(List.of(name)).all());
        }
        say("state " + admin.describeShareGroups(List.of(name)).all().get().get(name).groupState());
    }

    private void groupAdmin() throws Exception {
        String name = prepare("admin", 1, Map.of());
        produce(name, 5);
        try (var consumer = consumer(name, Map.of())) {
            poll(consumer);
        }
        offsets(name);
        var groups = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get();
        say("listed " + groups.stream().map(group -> group.groupId() + " " + group.type().get() + " " + group.groupState().get()).sorted().toList());
        attempt("alter offsets", admin.alterShareGroupOffsets(name, Map.of(new TopicPartition(name, 0), 2L)).all());
        offsets(name);
        attempt("alter offsets of a topic that isn't there", admin.alterShareGroupOffsets(name, Map.of(new TopicPartition("none", 0), 2L)).all());
        try (var consumer = consumer(name, Map.of())) {
            poll(consumer);
        }
        attempt("delete offsets", admin.deleteShareGroupOffsets(name, Set.of(name)).all());
        offsets(name);
        attempt("delete offsets again", admin.deleteShareGroupOffsets(name, Set.of(name)).all());
        attempt("delete", admin.deleteShareGroups(List.of(name)).all());
        attempt("delete again", admin.deleteShareGroups(List.of(name)).all());
        attempt("describe what isn't there", admin.describeShareGroups(List.of(name)).all());
        attempt("offsets of what isn't there", admin.listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec())).all());
        attempt("alter offsets of what isn't there", admin.alterShareGroupOffsets(name, Map.of(new TopicPartition(name, 0), 1L)).all());
        attempt("delete offsets of what isn't there", admin.deleteShareGroupOffsets("none", Set.of(name)).all());
    }

    /** A topic and a group of this name; the group starts at the earliest offset. */
    private String prepare(String name, int partitions, Map<String, String> config) throws Exception {
        say("== " + name);
        create(name, partitions);
        group(name, config);
        return name;
    }

    private void create(String name, int partitions) throws Exception {
        create(name, partitions, Map.of());
    }

    private void create(String name, int partitions, Map<String, String> config) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(config))).all().get();
    }

    private void group(String name, Map<String, String> config) throws Exception {
        Map<String, String> all = new HashMap<>(config);
        all.put("share.auto.offset.reset", "earliest");
        // The second heartbeat brings the partitions.
        all.put("share.heartbeat.interval.ms", "500");
        all.put("share.assignment.interval.ms", "0");
        alter(new ConfigResource(ConfigResource.Type.GROUP, name), all).get();
        settle();
    }

    /** Metadata reach a real broker a moment after the answer. */
    private static void settle() throws InterruptedException {
        Thread.sleep(300);
    }

    private KafkaFuture<Void> alter(ConfigResource resource, Map<String, String> values) {
        Collection<AlterConfigOp> operations = values.entrySet().stream()
            .map(entry -> new AlterConfigOp(new ConfigEntry(entry.getKey(), entry.getValue()), OpType.SET))
            .toList();
        return admin.incrementalAlterConfigs(Map.of(resource, operations)).all();
    }

    private Map<String, String> changed(ConfigResource resource) throws Exception {
        Map<String, String> changed = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG
                || entry.source() == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG) {
                changed.put(entry.name(), entry.value());
            }
        }
        return changed;
    }

    private Map<String, Object> config(String group, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", servers);
        config.put("group.id", group);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        return config;
    }

    private KafkaShareConsumer<String, String> consumer(String name, Map<String, Object> more) {
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(config(name, more));
        consumer.subscribe(List.of(name));
        return consumer;
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", servers);
        config.put("linger.ms", "200");
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    /** One batch in partition 0. */
    private void produce(String topic, int records) {
        try (var producer = producer(Map.of())) {
            for (int index = 0; index < records; index++) {
                producer.send(new ProducerRecord<>(topic, 0, "key-" + index, "value-" + index));
            }
        }
    }

    /** The next records, told with offset and delivery count. */
    private static List<ConsumerRecord<String, String>> poll(KafkaShareConsumer<String, String> consumer) {
        long end = System.nanoTime() + LONG.toNanos();
        while (System.nanoTime() < end) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(1));
            if (!records.isEmpty()) {
                List<ConsumerRecord<String, String>> list = StreamSupport.stream(records.spliterator(), false).toList();
                say("got " + list.stream()
                    .map(record -> record.partition() + "-" + record.offset() + "x" + record.deliveryCount().get() + " " + record.value())
                    .collect(Collectors.joining(", ")));
                return list;
            }
        }
        throw new IllegalStateException("no records within " + LONG);
    }

    private List<String> describe(String group) throws Exception {
        return admin.describeShareGroups(List.of(group)).all().get().get(group).members().stream()
            .map(member -> member.assignment().topicPartitions().stream().map(TopicPartition::toString).collect(Collectors.joining(",")))
            .sorted()
            .toList();
    }

    /** Start offsets and lags. */
    private void offsets(String group) throws Exception {
        var offsets = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).all().get().get(group);
        Map<String, String> sorted = new TreeMap<>();
        offsets.forEach((partition, info) -> sorted.put(partition.toString(),
            info == null ? "none" : info.startOffset() + " lag " + info.lag().map(String::valueOf).orElse("unknown")));
        say("offsets " + sorted);
    }

    private static Map<String, String> results(Map<TopicIdPartition, Optional<KafkaException>> results) {
        Map<String, String> sorted = new TreeMap<>();
        results.forEach((partition, exception) -> sorted.put(text(partition), text(exception.orElse(null))));
        return sorted;
    }

    private static String text(TopicIdPartition partition) {
        return partition.topicPartition().toString();
    }

    private static String text(Throwable failure) {
        return failure == null ? "fine" : failure.getClass().getSimpleName() + ": " + failure.getMessage();
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void attempt(String what, KafkaFuture<?> future) throws Exception {
        attempt(what, () -> future.get());
    }

    private static void attempt(String what, Step step) throws Exception {
        try {
            step.run();
            say(what + ": fine");
        } catch (ExecutionException failed) {
            say(what + ": " + text(failed.getCause()));
        } catch (KafkaException | IllegalStateException | IllegalArgumentException failed) {
            say(what + ": " + text(failed));
        }
    }

    private static void say(String line) {
        System.out.println(line);
    }
}
