package main

import (
	"fmt"
	"strings"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

// residentMB is the memory of a process in MB, 0 where the system does not tell.
func residentMB(pid int) int64 {
	n, err := machine.ResidentBytes(pid)
	if err != nil {
		return 0
	}
	return n >> 20
}

// attackedNodes are the processes that the attackers' requests pass: the first gateway and its region's local instances.
func (t *targetFleet) attackedNodes() []fleet.Node {
	gateway := t.fleet.NodesByRole("regional")[0]
	nodes := []fleet.Node{gateway}
	for _, n := range t.fleet.NodesByRole("local") {
		if n.Region == gateway.Region {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// regionMemory is the memory of the attacked processes in MB.
func (t *targetFleet) regionMemory() []int64 {
	var out []int64
	for _, n := range t.attackedNodes() {
		out = append(out, residentMB(t.running.PID(n)))
	}
	return out
}

// judgeMemory reports an attacked process that has grown by more than memoryGrowthMB.
func (t *targetFleet) judgeMemory(before []int64) error {
	for i, now := range t.regionMemory() {
		if now-before[i] > memoryGrowthMB {
			return fmt.Errorf("%s has grown from %d to %d MB", t.attackedNodes()[i].ID(), before[i], now)
		}
	}
	return nil
}

// memoryGrowth is how the attacked processes have grown.
func (t *targetFleet) memoryGrowth(before []int64) string {
	var parts []string
	for i, now := range t.regionMemory() {
		parts = append(parts, fmt.Sprintf("%s %d -> %d MB", t.attackedNodes()[i].ID(), before[i], now))
	}
	return strings.Join(parts, ", ")
}
