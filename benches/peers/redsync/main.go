// Command redsync-peer obtains and releases keys with redsync, for the scenario latency. Its only
// argument is the URL of a Redis server. src/peer_process.rs of the benchmark describes its input and
// output.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

const (
	ttl    = 10 * time.Second
	module = "github.com/go-redsync/redsync/v4"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "redsync: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("the only argument is the URL of a Redis server")
	}
	options, err := goredislib.ParseURL(os.Args[1])
	if err != nil {
		return fmt.Errorf("parsing the URL %q: %w", os.Args[1], err)
	}
	client := goredislib.NewClient(options)
	defer client.Close()
	if err := client.Ping(context.Background()).Err(); err != nil {
		return fmt.Errorf("connecting to %s: %w", os.Args[1], err)
	}
	locks := redsync.New(goredis.NewPool(client))
	fmt.Printf("redsync %s (Go)\n", version())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		tasks, cycles, err := parse(lines.Text())
		if err != nil {
			return err
		}
		start := time.Now()
		untilGranted, err := cyclesByTasks(locks, tasks, cycles)
		if err != nil {
			return err
		}
		took := time.Since(start)
		slices.Sort(untilGranted)
		perSecond := float64(len(untilGranted)) / took.Seconds()
		p50, p99 := percentile(untilGranted, 50), percentile(untilGranted, 99)
		fmt.Printf("%.4f %.4f %.0f\n", p50, p99, perSecond)
	}
	return lines.Err()
}

// parse reads the line that starts a round: TASKS CYCLES.
func parse(line string) (tasks, cycles int, err error) {
	// Sscanln reports a third word as an error.
	_, err = fmt.Sscanln(line, &tasks, &cycles)
	if err != nil || tasks < 1 || cycles < tasks {
		return 0, 0, fmt.Errorf("the line %q is not TASKS CYCLES, with a cycle or more per task", line)
	}
	return tasks, cycles, nil
}

// cyclesByTasks obtains and releases a key per task. It returns the times from each call to its grant.
func cyclesByTasks(locks *redsync.Redsync, tasks, cycles int) ([]time.Duration, error) {
	untilGranted := make([][]time.Duration, tasks)
	failures := make([]error, tasks)
	var running sync.WaitGroup
	for task := range tasks {
		running.Go(func() {
			// A name that no other contestant uses: a round that is cut off leaves its keys held.
			key := fmt.Sprintf("redsync-key-%d", task)
			untilGranted[task], failures[task] = cyclesOf(locks, key, cycles/tasks)
		})
	}
	running.Wait()
	// One failure is enough for a message: if the server crashes, all tasks fail.
	return slices.Concat(untilGranted...), cmp.Or(failures...)
}

func cyclesOf(locks *redsync.Redsync, key string, cycles int) ([]time.Duration, error) {
	untilGranted := make([]time.Duration, 0, cycles)
	for range cycles {
		called := time.Now()
		// Like the other contestants, a cycle starts with the name of its key.
		mutex := locks.NewMutex(key, redsync.WithExpiry(ttl))
		if err := mutex.Lock(); err != nil {
			return nil, fmt.Errorf("obtaining %s: %w", key, err)
		}
		untilGranted = append(untilGranted, time.Since(called))
		if ok, err := mutex.Unlock(); !ok || err != nil {
			return nil, fmt.Errorf("releasing %s: %w", key, err)
		}
	}
	return untilGranted, nil
}

// percentile returns milliseconds. It rounds the index down, as the scenario does.
func percentile(sorted []time.Duration, part int) float64 {
	return sorted[(len(sorted)-1)*part/100].Seconds() * 1e3
}

// version returns the version of redsync in this program.
func version() string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range built.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "of an unknown version"
}
