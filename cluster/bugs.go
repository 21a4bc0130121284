package cluster

// seeded is a fault that is put in on purpose, to see that the tests find it. It
// is always noBug but in tests of this package and in programs built with the tag
// stintbugs.
type seeded string

const (
	noBug           seeded = ""
	bugNoFence      seeded = "nofence"      // entries are taken in any term
	bugVerifyLeader seeded = "verifyleader" // leadership is confirmed by Raft's VerifyLeader alone
	bugEarlyDrop    seeded = "earlydrop"    // the overlay is dropped before its entry is applied
	bugEarlyReply   seeded = "earlyreply"   // replies go out before the entry is committed
	bugNoSync       seeded = "nosync"       // the log is not synced
)

// SeededNoSync says whether the log is not to be synced, as a fault on purpose.
func SeededNoSync() bool { return seededBug() == bugNoSync }
