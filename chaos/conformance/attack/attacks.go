package main

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
