// Package fault injects faults into a running local fleet of processes (chaos/fleet), keeps each as a lease at the
// injured place, and proves by a probe that it is cleared.
//
// # Leases
//
// A fault is not a promise of the process that asked for it. The place that is injured keeps it as a lease with an end
// on its own clock, and clears it when the lease ends. The process that injected it may be killed at any time.
//
//	links      the relay, a process of its own, that carries the link's bytes
//	processes  the fault agent, one for each fleet directory; also for disks, clocks, certificates, inputs and operators
//	workers    the simulated worker itself, on its chaos page
//
// The relay and the agent write their leases to the fleet's directory before they inject anything. Each runs as a pair:
// a second process waits for the lock of the first, and after `kill -9` of the first reads the leases, clears those that
// have ended and keeps the rest. Clearing twice is the same as clearing once.
//
// # Use
//
//	in, err := fault.Open(dir)                     // a fleet of processes that was started with its relays
//	err = in.Inject(ctx, fault.Spec{ID: "d1-1", Kind: fault.ProcessPause, Target: fault.Target{Node: "g1"},
//		Lease: 5 * time.Second})
//	state, err := in.Verify(ctx, "d1-1")           // PhaseActive
//	err = in.Clear(ctx, "d1-1")
//	state, err = in.Verify(ctx, "d1-1")            // PhaseCleared, and State.Probe is the evidence
//
// Kinds lists every kind with its parameters, their units and bounds, and what it may be aimed at. The names are those
// of chaos/sim where the fault is the same, so that a drill runs on the simulator too.
//
// # Limits
//
// Everything is on loopback and needs no privileges. Faults of disks that fail system calls need strace.
package fault
