// Command attack runs a fleet on loopback, attacks it the way its reviewers did, and prints for each attack whether it was
// refused and what was measured. The fleet is the real binary: global nodes, gateways and local instances as processes of
// their own. The workers are victims: simulated workers behind a server of this program that counts what reaches them and
// that dies, refuses or echoes when a request holds a marker.
//
// Attacks are bounded in number and time and go to loopback addresses only. The program decides nothing for Spillway and
// never reads its state except through its public listeners, as an attacker would.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"text/tabwriter"
	"time"
)

// attackCase is one attempt to hurt the fleet or another tenant.
type attackCase struct {
	name    string
	finding string // the finding that it repeats
	// run attacks and returns what it measured. An error is an attack that succeeded, or one that could not be made.
	run func(context.Context, *targetFleet) (string, error)
}

// attackTimeout bounds one attack, its own waits included.
const attackTimeout = 90 * time.Second

func main() {
	if err := runMain(); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func runMain() error {
	binary := flag.String("binary", "bin/spillway", "the spillway binary to attack")
	only := flag.String("only", "", "run only the attacks whose name matches this regular expression")
	list := flag.Bool("list", false, "list the attacks and exit")
	keep := flag.String("dir", "", "keep the fleet's files and logs in this folder")
	flag.Parse()
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *list {
		for _, a := range listAttacks() {
			fmt.Printf("%-36s %s\n", a.name, a.finding)
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t, err := startFleet(ctx, *binary, *keep)
	if err != nil {
		return err
	}
	defer t.stopFleet()
	fmt.Printf("the fleet of %d processes and %d workers serves; its files are in %s\n\n", t.processes, len(t.workers), t.fleet.Dir)
	return runAttacks(ctx, t, chosen)
}

// runAttacks runs the attacks one after the other and prints a line for each. After each attack the fleet must still
// serve an ordinary request of another tenant with every worker.
func runAttacks(ctx context.Context, t *targetFleet, chosen *regexp.Regexp) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "RESULT\tATTACK\tFINDING\tMEASURED")
	refused, failed := 0, 0
	for _, a := range listAttacks() {
		if !chosen.MatchString(a.name) {
			continue
		}
		measured, err := runOne(ctx, t, a)
		result := "refused"
		if err != nil {
			result, failed = "SUCCEEDED", failed+1
			measured = err.Error()
		} else {
			refused++
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", result, a.name, a.finding, measured)
		if err := out.Flush(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Printf("\n%d attacks refused, %d succeeded\n", refused, failed)
	if failed > 0 {
		return errors.New("the fleet did not withstand every attack")
	}
	if refused == 0 {
		return errors.New("no attack has such a name; -list prints them")
	}
	return nil
}

func runOne(ctx context.Context, t *targetFleet, a attackCase) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, attackTimeout)
	defer cancel()
	whole := t.serviceNow(ctx) == nil // else an earlier attack has done its harm, and this one is judged by itself
	t.resetWorkers()
	measured, err := a.run(ctx, t)
	if err != nil || !whole {
		return measured, err
	}
	if err := t.expectService(ctx); err != nil {
		return "", fmt.Errorf("afterwards the fleet does not serve other tenants: %w", err)
	}
	return measured, nil
}

// listAttacks in the order in which they run.
func listAttacks() []attackCase {
	return append(tenantAttacks(), controlAttacks()...)
}

func tenantAttacks() []attackCase {
	return []attackCase{
		{"management pages by POST", "local S1-1", postManagementPaths},
		{"management pages by Upgrade", "local S1-1", upgradeManagementPaths},
		{"management methods by gRPC", "local S1-1", callManagementByGRPC},
		{"management pages at the zone", "local S1-1", sendManagementToZone},
		{"paths in disguise", "local S1-1", sendDisguisedPaths},
		{"WebSocket to an engine without one", "local S1-2", sendRefusedUpgrades},
		{"gRPC to a worker without it", "local S1-2", sendRefusedGRPC},
		{"error events of the client's own", "local S1-2", sendTooLongStreams},
		{"a prompt with an engine's last words", "local S1-2", sendEchoedPrompts},
		{"a request that kills workers", "issue", sendPoisonRequest},
		{"a stream that kills workers", "issue", sendPoisonStream},
		{"a prompt past its regions", "local S2-1", sendFencedPrompt},
		{"a model outside the list", "local S2-5", askForeignModels},
		{"members twice or in another case", "local S2-5", sendDuplicateMembers},
		{"output past its limit", "local S2-7", exceedOutputLimit},
		{"bodies that stop", "local S2-2", sendStoppedBodies},
		{"gRPC calls that never send", "local S2-3", openSilentGRPC},
		{"leaving before the first byte", "local S2-6", leaveLongPrompts},
		{"large bodies held open", "local S3-2", holdLargeBodies},
		{"smuggled requests", "corpus", sendSmuggledRequests},
	}
}
