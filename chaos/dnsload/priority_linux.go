package dnsload

import (
	"os"

	"golang.org/x/sys/unix"
)

// Priority asks the system to let this process and its children go before all else, which it may refuse: a figure taken
// while others have the core says little.
func Priority() {
	if _, err := unix.Setsid(); err == nil { // a session is what the scheduler shares the machine among
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
		_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, task := range tasks {
		_ = unix.Setpriority(unix.PRIO_PROCESS, threadID(task.Name()), -20)
	}
}

func threadID(text string) (n int) {
	for _, c := range text {
		n = 10*n + int(c-'0')
	}
	return n
}
