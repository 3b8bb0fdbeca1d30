package regional

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/tenant"
)

const (
	budgetsFile = "budgets.json"
	// budgetPersistInterval is how often the used budgets are persisted: up to this much is lost when a gateway is
	// killed.
	budgetPersistInterval = time.Second
	maxBudgetsSize        = 64 << 20
)

// budgetFile persists the use of daily budgets, so that a restart does not renew them.
type budgetFile struct {
	dir       string // empty: nothing is persisted
	log       *slog.Logger
	tenants   *tenantGate
	persisted string // the file as read at the start
	failures  telemetry.LogThrottle
}

// runPersister persists the used budgets until ctx ends, and then once more.
func (b *budgetFile) runPersister(ctx context.Context) {
	if b.dir == "" {
		return
	}
	last := b.persisted
	tick := time.NewTicker(budgetPersistInterval)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-tick.C:
		}
		text, err := json.Marshal(b.tenants.listDayUse())
		if err != nil || string(text) == last {
			continue
		}
		if err := uplink.WriteFileAtomic(filepath.Join(b.dir, budgetsFile), text); err != nil {
			if left, ok := b.failures.AllowLine("budgets", "", time.Now()); ok {
				b.log.Error("what tenants have used of their budgets was not written down: a restart would forget it", telemetry.ErrorAttr(err), telemetry.KeySuppressed, left)
			}
			continue
		}
		last = string(text)
	}
}

// loadUse reads what runPersister wrote. An unreadable file is reported and ignored.
func (b *budgetFile) loadUse() {
	if b.dir == "" {
		return
	}
	days, text, err := readBudgets(filepath.Join(b.dir, budgetsFile))
	if err != nil {
		b.log.Warn("file of daily budgets not readable: every tenant's use today counts from zero again: restore or delete the file", telemetry.ErrorAttr(err))
		return
	}
	b.persisted = string(text)
	b.tenants.mu.Lock()
	defer b.tenants.mu.Unlock()
	b.tenants.enforcer.RestoreDayUse(days)
}

// readBudgets returns the record and its text.
func readBudgets(name string) ([]tenant.DayUse, []byte, error) {
	text, _, err := uplink.ReadFileLimited(name, maxBudgetsSize)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the record of budgets: %w", err)
	}
	if text == nil {
		return nil, nil, nil
	}
	var days []tenant.DayUse
	if err := json.Unmarshal(text, &days); err != nil {
		return nil, nil, fmt.Errorf("reading the record of budgets: %w", err)
	}
	return days, text, nil
}
