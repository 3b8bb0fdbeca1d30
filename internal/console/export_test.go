package console

// Names for tests.
const MaxViewers = maxViewers

var ChooseInterval = chooseInterval
