import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/** The hash of ../client/src/checksum.rs, and which records were settled for good: one bit per offset. */
final class Hash {
    private static final long FIRST = 0xd6e8_feb8_6659_fd93L;
    private static final long STEP = 0x9e37_79b9_7f4a_7c16L;
    private static final long LENGTH = 0xc2b2_ae3d_27d4_eb4fL;
    private static final VarHandle WORDS =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private long[][] partitions = new long[0][];
    long settled;
    long again;
    long checksum;

    static long bytes(byte[] bytes) {
        if (bytes == null) {
            return 0;
        }
        long sum = (bytes.length + 1L) * LENGTH;
        long factor = FIRST;
        int at = 0;
        for (; at + 8 <= bytes.length; at += 8) {
            sum += (long) WORDS.get(bytes, at) * factor;
            factor += STEP;
        }
        if (at < bytes.length) {
            sum += (long) WORDS.get(Arrays.copyOfRange(bytes, at, at + 8), 0) * factor;
        }
        return sum;
    }

    static long record(long timestamp, byte[] key, byte[] value, Headers headers) {
        long hash = timestamp * FIRST;
        hash = mix(hash, bytes(key));
        hash = mix(hash, bytes(value));
        for (Header header : headers) {
            hash = mix(hash, bytes(header.key().getBytes(StandardCharsets.UTF_8)));
            hash = mix(hash, bytes(header.value()));
        }
        return hash ^ hash >>> 32;
    }

    private static long mix(long hash, long part) {
        return (Long.rotateLeft(hash, 29) ^ part) * LENGTH;
    }

    void settle(int partition, long offset, long hash) {
        if (partition >= partitions.length) {
            partitions = Arrays.copyOf(partitions, partition + 1);
        }
        int word = (int) (offset / 64);
        long[] marks = partitions[partition];
        if (marks == null || word >= marks.length) {
            marks = marks == null ? new long[word + 1024] : Arrays.copyOf(marks, word + 1024);
            partitions[partition] = marks;
        }
        long bit = 1L << (offset % 64);
        if ((marks[word] & bit) != 0) {
            again++;
            return;
        }
        marks[word] |= bit;
        settled++;
        checksum += hash;
    }
}
