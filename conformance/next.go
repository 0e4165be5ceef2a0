package conformance

import "os"

// nextVariable makes the suite run the cases that a driver does not pass yet.
const nextVariable = "LOCK_TEST_NEXT"

// Pending is a case, or a test of one driver, that a driver of this project does not pass before it is moved to a common
// waiting machine. It is left out unless LOCK_TEST_NEXT is set.
type Pending struct {
	// Driver is Capabilities.Name of the driver.
	Driver string
	// Test is the id of a case, or the folder and the name of a test: "integration/postgres TestGuard".
	Test string
	// Why says what a user sees today.
	Why string
}

// pending has the defects that are known and wait for a machine. It is empty when the drivers are on them.
var pending = append([]Pending{
	{"memcached", relockCase, relockEffect},
	{"nats", relockCase, relockEffect},
	{"s3", relockCase, relockEffect},
	{"zookeeper", fixedCase, fixedEffect},
	{"zookeeper", readersCase, "of 10,000 readers of one client many are not granted, and half of the leases are lost"},
	{"etcd", "integration/etcd TestGRPCProxy", "a lease of TTL 2 s through etcd's gRPC proxy is lost"},
}, refusals("zookeeper", "file")...)

const (
	relockCase      = "waiting/10-served-beside-relocks"
	relockEffect    = "a client that locks again at once can keep out a waiter of another process for minutes"
	readersCase     = "shared/43-ten-thousand-readers"
	fixedCase       = "lease/24-fixed-lease-in-full"
	fixedEffect     = "a lease without renewal is trusted for 67 to 80 % of its TTL on a client in use"
	shortCase       = "shared/48-dead-waiter-short-attempts"
	shortEffect     = "a dead writer at the head of the queue keeps out readers that only try, or wait briefly, for longer than 3 s"
	capacityEffect  = "permits of another capacity than those in use are refused with an error, so a rolling deployment cannot change it"
	kindsEffect     = "readers and permits of one name refuse each other with an error, and do not wait for each other"
	downgradeEffect = "Downgrade returns an error while permits wait"
)

// refusals returns the cases of drivers that refuse a share because of the capacity of others.
func refusals(drivers ...string) (all []Pending) {
	for _, d := range drivers {
		all = append(all,
			Pending{d, "shared/45-another-capacity", capacityEffect},
			Pending{d, "shared/45-another-capacity-waits", capacityEffect},
			Pending{d, "shared/45-readers-and-permits", kindsEffect},
			Pending{d, "shared/44-downgrade-before-permits", downgradeEffect})
	}
	return all
}

// PendingTests returns what is left out unless LOCK_TEST_NEXT is set.
func PendingTests() []Pending { return pending }

// leftOut returns why a test of a driver is left out, "" if it runs.
func leftOut(driver, test string) string {
	if os.Getenv(nextVariable) != "" {
		return ""
	}
	for _, p := range pending {
		if p.Driver == driver && p.Test == test {
			return "left out: " + p.Why + " (" + nextVariable + "=1 runs it)"
		}
	}
	return ""
}
