import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.api.options.KeysScanOptions;
import org.redisson.config.Config;

/**
 * Obtains and releases keys with Redisson, for the scenario latency. Its only argument is the URL of a
 * Redis server. src/peer_process.rs of the benchmark describes its input and output.
 */
public final class RedissonPeer {
    private static final long TTL_SECONDS = 10;

    /** The time limit of a call that waits. No call does: each task has a key of its own. */
    private static final long WAIT_SECONDS = 100;

    private static final int WARM_UP_TASKS = 64;

    private static final int WARM_UP_CYCLES = 16_384;

    private final RedissonClient redisson;

    private RedissonPeer(RedissonClient redisson) {
        this.redisson = redisson;
    }

    public static void main(String[] arguments) {
        // This program has no library that writes a log. Errors reach it as exceptions.
        System.setProperty("slf4j.internal.verbosity", "ERROR");
        try {
            run(arguments);
        } catch (IOException | RuntimeException error) {
            System.err.println("Redisson: " + rootOf(error).getMessage());
            // Redisson's threads would keep the process running.
            System.exit(1);
        }
    }

    private static void run(String[] arguments) throws IOException {
        if (arguments.length != 1) {
            throw new IllegalArgumentException("the only argument is the URL of a Redis server");
        }
        RedissonClient redisson = connect(arguments[0]);
        RedissonPeer peer = new RedissonPeer(redisson);
        // Interpreted code takes several times as long. After these cycles, the code that runs most is
        // compiled. The scenario then also runs a round of each number of tasks before it measures.
        peer.cyclesByTasks(WARM_UP_TASKS, WARM_UP_CYCLES);
        String version = Redisson.class.getPackage().getImplementationVersion();
        System.out.println("Redisson " + version + " (Java)");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(peer.round(line));
        }
        redisson.shutdown();
    }

    private static RedissonClient connect(String url) {
        Config config = new Config();
        try {
            config.useSingleServer().setAddress(url);
            return Redisson.create(config);
        } catch (RuntimeException error) {
            String reason = rootOf(error).getMessage();
            throw new IllegalArgumentException("cannot connect to " + url + ": " + reason);
        }
    }

    /** The first cause. The exceptions around it repeat its message, without a word of their own. */
    private static Throwable rootOf(Throwable error) {
        return error.getCause() == null ? error : rootOf(error.getCause());
    }

    /** Runs the round that a line TASKS CYCLES describes. Returns the line of its values. */
    private String round(String line) {
        if (!line.matches("[1-9][0-9]{0,8} [1-9][0-9]{0,8}")) {
            throw malformed(line);
        }
        String[] words = line.split(" ");
        int tasks = Integer.parseInt(words[0]);
        int cycles = Integer.parseInt(words[1]);
        if (cycles < tasks) {
            throw malformed(line);
        }
        long start = System.nanoTime();
        double[] sorted = cyclesByTasks(tasks, cycles);
        double seconds = (System.nanoTime() - start) / 1e9;
        awaitDeletions();
        Arrays.sort(sorted);
        return String.format(
                Locale.ROOT,
                "%.4f %.4f %.0f",
                percentile(sorted, 50),
                percentile(sorted, 99),
                sorted.length / seconds);
    }

    private static IllegalArgumentException malformed(String line) {
        return new IllegalArgumentException(
                "the line \"" + line + "\" is not TASKS CYCLES, with a cycle or more per task");
    }

    /** Rounds the index down, as the scenario does. */
    private static double percentile(double[] sorted, int part) {
        return sorted[(int) ((sorted.length - 1L) * part / 100)];
    }

    /** Each task obtains and releases a key of its own. Returns the milliseconds until each grant. */
    private double[] cyclesByTasks(int tasks, int cycles) {
        List<Task> all = IntStream.range(0, tasks).mapToObj(id -> new Task(id, cycles / tasks)).toList();
        all.forEach(Task::cycle);
        return all.stream().flatMapToDouble(task -> Arrays.stream(task.finished.join())).toArray();
    }

    /**
     * Waits until the server has no key of a finished release. Redisson deletes these keys after it
     * reports the release. This must not slow down the next contestant. If a deletion is lost, the key
     * expires.
     */
    private void awaitDeletions() {
        KeysScanOptions ofReleases = KeysScanOptions.defaults().pattern("redisson_unlock_latch:*");
        while (redisson.getKeys().getKeys(ofReleases).iterator().hasNext()) {
            Thread.onSpinWait();
        }
    }

    /**
     * Cycles of one key, one after another. The calls are asynchronous, so that 1,024 tasks need no
     * 1,024 threads.
     */
    private final class Task {
        /** Redisson takes it for the thread that holds the lock. */
        private final long id;

        private final String key;
        private final double[] untilGranted;
        private int done;
        private final CompletableFuture<double[]> finished = new CompletableFuture<>();

        Task(long id, int cycles) {
            this.id = id;
            // A name that no other contestant uses: a round that is cut off leaves its keys held.
            key = "redisson-key-" + id;
            untilGranted = new double[cycles];
        }

        void cycle() {
            if (done == untilGranted.length) {
                finished.complete(untilGranted);
                return;
            }
            long called = System.nanoTime();
            // Like the other contestants, a cycle starts with the name of its key.
            RLock lock = redisson.getLock(key);
            lock.tryLockAsync(WAIT_SECONDS, TTL_SECONDS, TimeUnit.SECONDS, id)
                    .whenComplete((granted, error) -> {
                        if (error != null || !granted) {
                            fail("obtain", error);
                            return;
                        }
                        untilGranted[done++] = (System.nanoTime() - called) / 1e6;
                        release(lock);
                    });
        }

        private void release(RLock lock) {
            lock.unlockAsync(id).whenComplete((nothing, error) -> {
                if (error != null) {
                    fail("release", error);
                    return;
                }
                cycle();
            });
        }

        private void fail(String call, Throwable error) {
            String reason = error == null ? "another holder has it" : error.getMessage();
            String message = "cannot " + call + " " + key + ": " + reason;
            finished.completeExceptionally(new IllegalStateException(message));
        }
    }
}
