import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Workers of a consumer group, each with a consumer of its own in a thread of its own. Commands
 * come by standard input, one per line:
 *
 * <pre>
 * warm           join a group of its own once, so that what follows runs no code for the first time
 * add W          start worker W
 * remove W W ... let them end what they have begun, commit and leave
 * freeze         let all workers end nothing more; the process is killed then
 * pace MIN MORE  handlers take MIN ns, and up to MORE more
 * pause, resume  fetch nothing; fetch again
 * </pre>
 *
 * What happens goes to standard output: "run W PARTITION KEY N ARRIVED START END", times in ns
 * since 1970, "owns W PARTITIONS", "revoked W P P ...", "done COMMAND", "fault TEXT". The end of
 * the input ends the process.
 */
public final class Workers {
    /** How often offsets are committed: the default of auto.commit.interval.ms. */
    private static final long COMMIT_NANOS = TimeUnit.SECONDS.toNanos(5);

    private static final long REPORT_MILLIS = 50;

    private static final String TOPIC = "dc";

    private final Properties properties;
    private final Map<Integer, Worker> workers = new ConcurrentHashMap<>();
    private final ScheduledExecutorService timers = Executors.newScheduledThreadPool(2);
    private final PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.US_ASCII);
    private final ConcurrentLinkedQueue<Run> runs = new ConcurrentLinkedQueue<>();
    private final AtomicLong ended = new AtomicLong();
    private final long clockOffset;
    private volatile long least;
    private volatile long spread;
    private volatile boolean paused;

    private record Run(int worker, int partition, byte[] data, long arrivedMillis, long start, long end) {}

    private Workers(Properties properties) {
        this.properties = properties;
        long before = System.nanoTime();
        Instant now = Instant.now();
        clockOffset = TimeUnit.SECONDS.toNanos(now.getEpochSecond()) + now.getNano() - before;
    }

    public static void main(String[] args) throws IOException {
        System.setOut(System.err); // the client's logger prints there
        Properties p = new Properties();
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        for (String setting : args) {
            int at = setting.indexOf('=');
            p.put(setting.substring(0, at), setting.substring(at + 1));
        }
        new Workers(p).serve();
    }

    private void serve() throws IOException {
        Executors.newSingleThreadScheduledExecutor()
                .scheduleWithFixedDelay(new Reporter(), REPORT_MILLIS, REPORT_MILLIS, TimeUnit.MILLISECONDS);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "warm" -> warm();
                case "add" -> add(Integer.parseInt(words[1]));
                case "remove" -> remove(words);
                case "freeze" -> workers.values().forEach(w -> w.frozen = true);
                case "pace" -> {
                    least = Long.parseLong(words[1]);
                    spread = Long.parseLong(words[2]);
                }
                case "pause" -> paused = true;
                case "resume" -> {
                    paused = false;
                    workers.values().forEach(w -> w.consumer.wakeup());
                }
                default -> say("fault no command: " + line);
            }
            report();
            say("done " + line);
        }
        System.exit(0);
    }

    /** Ends workers beside each other, and waits for all. */
    private void remove(String[] words) {
        List<Worker> ending = new ArrayList<>();
        for (int i = 1; i < words.length; i++) {
            ending.add(workers.remove(Integer.parseInt(words[i])));
        }
        ending.forEach(w -> w.leaving = true);
        ending.forEach(Worker::join);
    }

    private void warm() {
        Properties own = new Properties();
        own.putAll(properties);
        own.put("group.id", "warm-" + ProcessHandle.current().pid());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(own)) {
            consumer.subscribe(List.of(TOPIC));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(100));
            }
        }
    }

    private void add(int number) {
        Worker w = new Worker(number);
        workers.put(number, w);
        w.thread.start();
    }

    private synchronized void say(String line) {
        out.println(line);
        out.flush();
    }

    private long now() {
        return System.nanoTime() + clockOffset;
    }

    /**
     * Writes what handlers did. While they take no time, which is when their rate is measured, it
     * waits until nothing more has ended, so that it costs them nothing.
     */
    private final class Reporter implements Runnable {
        private long before;

        @Override
        public void run() {
            long sofar = ended.get();
            boolean busy = least == 0 && sofar != before;
            before = sofar;
            if (busy) {
                return;
            }
            report();
        }
    }

    private synchronized void report() {
        for (Run r = runs.poll(); r != null; r = runs.poll()) {
            String[] words = new String(r.data, StandardCharsets.US_ASCII).split(" ", 3);
            out.println("run " + r.worker + " " + r.partition + " " + words[0] + " " + words[1] + " "
                    + TimeUnit.MILLISECONDS.toNanos(r.arrivedMillis) + " " + r.start + " " + r.end);
        }
        out.flush();
    }

    /** One member of the group. Its thread polls; timers end the calls of handlers. */
    private final class Worker implements Runnable, ConsumerRebalanceListener {
        private final int number;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Thread thread;
        private final Map<TopicPartition, Partition> partitions = new ConcurrentHashMap<>();
        private boolean holds;
        private volatile boolean leaving;
        private volatile boolean frozen;

        Worker(int number) {
            this.number = number;
            this.consumer = new KafkaConsumer<>(properties);
            this.thread = new Thread(this, "worker-" + number);
        }

        void join() {
            try {
                thread.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public void run() {
            try {
                consumer.subscribe(List.of(TOPIC), this);
                long committed = System.nanoTime();
                while (!leaving && !frozen) {
                    hold();
                    poll();
                    if (System.nanoTime() - committed > COMMIT_NANOS) {
                        // One that fails is made good by the next, as with auto commit.
                        consumer.commitAsync(offsets(partitions.keySet()), null);
                        committed = System.nanoTime();
                    }
                }
                if (leaving) {
                    consumer.close();
                }
            } catch (RuntimeException e) {
                say("fault worker " + number + ": " + e);
            }
        }

        /** Pauses or resumes what is fetched. */
        private void hold() {
            if (holds == paused) {
                return;
            }
            holds = paused;
            if (holds) {
                consumer.pause(consumer.assignment());
            } else {
                consumer.resume(consumer.assignment());
            }
        }

        private void poll() {
            ConsumerRecords<byte[], byte[]> records;
            try {
                records = consumer.poll(Duration.ofMillis(100));
            } catch (WakeupException e) {
                return;
            } catch (UnknownMemberIdException e) {
                return; // the group has excluded this member, which joins again as it polls
            }
            for (TopicPartition p : records.partitions()) {
                partitions.get(p).put(records.records(p));
            }
        }

        private Map<TopicPartition, OffsetAndMetadata> offsets(Collection<TopicPartition> of) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (TopicPartition p : of) {
                Partition own = partitions.get(p);
                if (own != null && own.next >= 0) {
                    offsets.put(p, new OffsetAndMetadata(own.next));
                }
            }
            return offsets;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            added.forEach(p -> partitions.put(p, new Partition(this, p.partition())));
            say("owns " + number + " " + partitions.size());
        }

        /** Ends what has been begun, commits and gives the partitions up. */
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            if (revoked.isEmpty() || frozen) {
                return;
            }
            StringBuilder line = new StringBuilder("revoked " + number);
            revoked.forEach(p -> line.append(' ').append(p.partition()));
            say(line.toString());
            revoked.forEach(p -> partitions.get(p).end());
            revoked.forEach(p -> partitions.get(p).await());
            try {
                consumer.commitSync(offsets(revoked));
            } catch (CommitFailedException | UnknownMemberIdException e) {
                // The group has excluded this member: the next owners begin at what was committed before.
            }
            partitions.keySet().removeAll(revoked);
            say("owns " + number + " " + partitions.size());
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> lost) {
            lost.forEach(p -> partitions.get(p).end());
            partitions.keySet().removeAll(lost);
            say("owns " + number + " " + partitions.size());
        }
    }

    /** One partition of a worker: one record at a time. */
    private final class Partition {
        private final Worker worker;
        private final int number;
        private final ArrayDeque<ConsumerRecord<byte[], byte[]>> waiting = new ArrayDeque<>();
        private boolean working;
        private boolean ending;
        private volatile long next = -1; // offset to be committed

        Partition(Worker worker, int number) {
            this.worker = worker;
            this.number = number;
        }

        synchronized void put(List<ConsumerRecord<byte[], byte[]>> records) {
            waiting.addAll(records);
            if (!working) {
                work();
            }
        }

        /** Works until a handler takes time, whose end goes on. Called with the lock. */
        private void work() {
            working = true;
            while (!ending && !waiting.isEmpty()) {
                ConsumerRecord<byte[], byte[]> r = waiting.poll();
                long start = now();
                if (least > 0) {
                    long d = least + ThreadLocalRandom.current().nextLong(spread + 1);
                    timers.schedule(() -> goOn(r, start), d, TimeUnit.NANOSECONDS);
                    return;
                }
                processed(r, start);
            }
            working = false;
            notifyAll();
        }

        private synchronized void goOn(ConsumerRecord<byte[], byte[]> r, long start) {
            if (!worker.frozen) {
                processed(r, start);
            }
            work();
        }

        private void processed(ConsumerRecord<byte[], byte[]> r, long start) {
            runs.add(new Run(worker.number, number, r.value(), r.timestamp(), start, now()));
            next = r.offset() + 1;
            ended.incrementAndGet();
        }

        /** Begins nothing more; the rest is the next owner's. */
        synchronized void end() {
            ending = true;
        }

        /** Waits for the end of what has been begun. */
        synchronized void await() {
            while (working) {
                try {
                    wait();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    return;
                }
            }
        }
    }
}
