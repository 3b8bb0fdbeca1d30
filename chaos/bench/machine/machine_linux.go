package machine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// KillWithParent makes a process that is not started yet end together with this one.
func KillWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// ProcessorTime is the CPU time of a process's current threads so far, including kernel time.
func ProcessorTime(pid int) (time.Duration, error) {
	used, _, err := schedTimes(pid)
	return used, err
}

// WaitingTime is how long they have been ready without a processor.
func WaitingTime(pid int) (time.Duration, error) {
	_, waited, err := schedTimes(pid)
	return waited, err
}

// schedTimes are the first two values of the kernel's scheduler statistics, summed over threads.
func schedTimes(pid int) (used, waited time.Duration, err error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(stats) == 0 {
		return 0, 0, fmt.Errorf("process %d is gone", pid)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that ended
		}
		var run, wait int64
		if _, err := fmt.Sscan(string(b), &run, &wait); err != nil {
			return 0, 0, fmt.Errorf("reading %s: %w", path, err)
		}
		used, waited = used+time.Duration(run), waited+time.Duration(wait)
	}
	return used, waited, nil
}

// ResidentBytes is the current memory of a process, in bytes.
func ResidentBytes(pid int) (int64, error) { return readStatusBytes(pid, "VmRSS:") }

// AnonymousBytes returns the part of a process's resident memory that no file backs: the system cannot drop it.
func AnonymousBytes(pid int) (int64, error) { return readStatusBytes(pid, "RssAnon:") }

// PeakBytes is its maximum so far.
func PeakBytes(pid int) (int64, error) { return readStatusBytes(pid, "VmHWM:") }

// readStatusBytes is an amount in a process's status file, in bytes.
func readStatusBytes(pid int, key string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte(key))
		if f := strings.Fields(string(rest)); ok && len(f) > 0 {
			kb, err := strconv.ParseInt(f[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("the system does not say what process %d has in memory", pid)
}

// clockTick is the unit of the kernel's CPU times.
const clockTick = 10 * time.Millisecond

// TotalCPUTime is the CPU time of all processes of this machine and of the kernel so far, in hundredths of a second.
func TotalCPUTime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system, idle, wait, irq, soft int64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft); err != nil {
		return 0, fmt.Errorf("reading /proc/stat: %w", err)
	}
	return time.Duration(user+nice+system+irq+soft) * clockTick, nil
}

// LoadAverage is the load average of the last minute.
func LoadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(b))[0]
}

// RaisePriority requests a high priority for this process and its children, which the system may refuse: measurements
// on a shared core are not reliable.
func RaisePriority() {
	if _, err := unix.Setsid(); err == nil { // the scheduler shares the machine among sessions
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
		_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, task := range tasks {
		_ = unix.Setpriority(unix.PRIO_PROCESS, parseThreadID(task.Name()), -20)
	}
}

func parseThreadID(text string) (n int) {
	for _, c := range text {
		n = 10*n + int(c-'0')
	}
	return n
}

// PinProcess pins all threads of this process to one core, and requests a high priority for it and its children, which
// the system may refuse.
func PinProcess(core int) error {
	RaisePriority()
	var set unix.CPUSet
	set.Set(core)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(id, &set)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// PinThread pins this thread to one core, and requests a high priority for this process and its children, which the
// system may refuse.
func PinThread(core int) error {
	RaisePriority()
	var set unix.CPUSet
	set.Set(core)
	return unix.SchedSetaffinity(0, &set)
}

// UseFineTimers lets this goroutine's thread wake up with microsecond precision.
func UseFineTimers() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) // coarser sleeps are only late
}

// SleepNanos sleeps at most a few milliseconds, without the Go scheduler.
func SleepNanos(ns int64) {
	ts := syscall.NsecToTimespec(max(ns, 1))
	_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // waking early does no harm
}

// ProcessTree is a process and all its descendants.
func ProcessTree(pid int) []int {
	all := []int{pid}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // none when it has ended
	for _, f := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(f); err == nil {
			all = append(all, ProcessTree(child)...)
		}
	}
	return all
}
