package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// processRecord identifies a running process in DIR/run/ID.json, so that another process than its parent can injure,
// restart and stop it.
type processRecord struct {
	PID int `json:"pid"`
	// Started is the process's start time in ticks since boot, where the system reports it: a later process may get the
	// same id.
	Started string `json:"started,omitempty"`
}

func (p *Files) processRecordPath(id string) string {
	return filepath.Join(p.Dir, "run", id+".json")
}

// RecordProcess stores the process that runs as a node, or as one of the fleet's own processes.
func (p *Files) RecordProcess(id string, pid int) error {
	if err := os.MkdirAll(filepath.Join(p.Dir, "run"), 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(processRecord{pid, readStartTime(pid)})
	if err != nil {
		return err
	}
	at := p.processRecordPath(id)
	if err := os.WriteFile(at+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(at+".new", at)
}

// RunningPID returns the id of the process that runs as a node, whichever process started it, and 0 if there is none.
func (p *Files) RunningPID(id string) int {
	b, err := os.ReadFile(p.processRecordPath(id))
	var r processRecord
	if err != nil || json.Unmarshal(b, &r) != nil || r.PID <= 1 || !isProcessAlive(r.PID) || readStartTime(r.PID) != r.Started {
		return 0
	}
	return r.PID
}

// readStartTime returns field 22 of /proc/PID/stat, or "" where there is none.
func readStartTime(pid int) string {
	f := readProcessStat(pid)
	if len(f) < 20 {
		return ""
	}
	return f[19]
}

// readProcessStat returns the fields of /proc/PID/stat from the third, the state, on.
func readProcessStat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	text := string(b)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

// StartProcess starts a node's process, `binary ROLE -c FILE` with its output appended to its log, and records it. The
// caller has to wait for it.
func (p *Files) StartProcess(n Node, binary string) (*exec.Cmd, error) {
	return p.startRecorded(n.ID(), binary, n.Role, "-c", p.ConfigPath(n))
}

func (p *Files) startRecorded(id, binary string, args ...string) (*exec.Cmd, error) {
	if err := os.MkdirAll(filepath.Join(p.Dir, "log"), 0o755); err != nil {
		return nil, fmt.Errorf("making the log folder: %w", err)
	}
	out, err := os.OpenFile(p.LogPath(id), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", id, err)
	}
	defer out.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = ownProcessGroup()
	cmd.Env = append(os.Environ(), p.processEnv(id)...)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", id, err)
	}
	if err := p.RecordProcess(id, cmd.Process.Pid); err != nil {
		return nil, errors.Join(fmt.Errorf("recording %s: %w", id, err), cmd.Process.Kill(), cmd.Wait())
	}
	return cmd, nil
}

// LogPath is the path of the output of a node's process.
func (p *Files) LogPath(id string) string { return filepath.Join(p.Dir, "log", id+".log") }

// ClockEnv names the environment variable that names the file from which a process of a fleet with relays reads the
// error of its wall clock; see chaos/fault.
const ClockEnv = "SPILLWAY_FAULT_CLOCK"

// ClockPath is that file of a node. It exists while its clock is wrong.
func (p *Files) ClockPath(id string) string { return filepath.Join(p.Dir, "run", id+".clock") }

// processEnv is the environment of a process in addition to this one's.
func (p *Files) processEnv(id string) []string {
	if !p.Layout.Relays {
		return nil
	}
	return []string{ClockEnv + "=" + p.ClockPath(id)}
}

// relayID and agentID are the fleet's own processes, which hold the leases of faults.
const (
	relayID = "fault-relay"
	agentID = "fault-agent"
)

// stopPoll is how often the end of a process that is not a child is looked for.
const stopPoll = 20 * time.Millisecond
