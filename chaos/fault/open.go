package fault

import "errors"

// Open returns the Injector of a local fleet of processes (fleet.WriteFiles with Layout.Links, fleet.SpawnAll). It
// starts nothing: the relay and the agent are processes of the fleet.
func Open(fleetDir string) (Injector, error) {
	return nil, errors.New("not implemented yet")
}
