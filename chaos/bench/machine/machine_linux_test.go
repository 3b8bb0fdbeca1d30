package machine

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestFiguresOfThisProcess: this process's usage is visible, and no amount is negative.
func TestFiguresOfThisProcess(t *testing.T) {
	pid := os.Getpid()
	before, err := ProcessorTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 32<<20)
	after := before
	for n := 0; after-before < 20*time.Millisecond; n++ {
		for i := range block {
			block[i] += byte(n)
		}
		if after, err = ProcessorTime(pid); err != nil || after < before {
			t.Fatalf("%v after %v: %v", after, before, err)
		}
	}
	resident, err := ResidentBytes(pid)
	if err != nil || resident < int64(len(block)) {
		t.Errorf("%d bytes are resident, %d were written: %v", resident, len(block), err)
	}
	if peak, err := PeakBytes(pid); err != nil || peak < int64(len(block)) {
		t.Errorf("the peak is %d bytes, %d were written: %v", peak, len(block), err)
	}
	if waited, err := WaitingTime(pid); err != nil || waited < 0 {
		t.Errorf("waited for %v: %v", waited, err)
	}
	if busy, err := TotalCPUTime(); err != nil || busy <= 0 {
		t.Errorf("the machine has been busy for %v: %v", busy, err)
	}
	if LoadAverage() == "" {
		t.Error("no load")
	}
}

// TestExitedProcessIsAnError: an ended process is an error, not one without usage.
func TestExitedProcessIsAnError(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if d, err := ProcessorTime(cmd.Process.Pid); err == nil {
		t.Errorf("a process that is gone has used %v", d)
	}
	if n, err := PeakBytes(cmd.Process.Pid); err == nil {
		t.Errorf("a process that is gone has %d bytes", n)
	}
}
