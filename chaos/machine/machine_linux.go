package machine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// DieWithUs has a process that is still to be started end when this one does, however it ends.
func DieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// ProcessorTime is what all threads that a process has now have used so far, in the kernel too.
func ProcessorTime(pid int) (time.Duration, error) {
	used, _, err := times(pid)
	return used, err
}

// WaitingTime is how long they have been ready and had no processor.
func WaitingTime(pid int) (time.Duration, error) {
	_, waited, err := times(pid)
	return waited, err
}

// times are the first two numbers that the kernel's scheduler keeps of each thread.
func times(pid int) (used, waited time.Duration, err error) {
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

// Resident is the memory that a process has now, in bytes.
func Resident(pid int) (int64, error) { return status(pid, "VmRSS:") }

// Peak is the most that it has had.
func Peak(pid int) (int64, error) { return status(pid, "VmHWM:") }

// status is an amount of a process's page, in bytes.
func status(pid int, key string) (int64, error) {
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

// tick is what the kernel counts the processors' time in.
const tick = 10 * time.Millisecond

// Busy is what all processes of this machine have used of its processors so far, and the kernel with them. It is counted
// in hundredths of a second.
func Busy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system, idle, wait, irq, soft int64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft); err != nil {
		return 0, fmt.Errorf("reading /proc/stat: %w", err)
	}
	return time.Duration(user+nice+system+irq+soft) * tick, nil
}

// Load is the system's load of the last minute.
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(b))[0]
}
