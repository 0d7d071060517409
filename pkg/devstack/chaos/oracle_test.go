package chaos

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// history is what two sequential sessions did to two objects of one tenant, and the topic that tells it right.
func history(t *testing.T) (map[string]fact, []record) {
	t.Helper()
	tenant, objects := uuid.New(), []uuid.UUID{uuid.New(), uuid.New()}
	truth, records := map[string]fact{}, []record(nil)
	for n := range 8 {
		f := fact{
			EventID: uuid.Must(uuid.NewV7()), Topic: topic, TenantID: tenant, ObjectID: objects[n%2], Version: 1 + n/2, Session: n % 2, Step: n / 2,
		}
		value, err := json.Marshal(envelope{ID: f.EventID, Object: f.ObjectID, Version: f.Version})
		require.NoError(t, err)
		truth[eventText(f.EventID)] = f
		records = append(records, record{
			topic: topic, partition: lane(tenant) % partitions, offset: int64(n), key: tenant.String(), value: value, eventID: eventText(f.EventID),
		})
	}
	return truth, records
}

// TestJudge: each oracle notices what it is for.
func TestJudge(t *testing.T) {
	t.Parallel()
	truth, records := history(t)
	require.Empty(t, judge(truth, records))
	require.Empty(t, judge(truth, append(slices.Clone(records), records[3])), "a duplicate is no violation")

	for _, c := range []struct {
		name, oracle string
		change       func(records []record) []record
	}{
		{"OneIsMissing", "L", func(r []record) []record { return r[:7] }},
		{"OneIsNobodys", "G", func(r []record) []record { r[7].eventID = eventText(uuid.New()); return r }},
		{"BytesOfAnother", "G", func(r []record) []record { r[7].value = r[6].value; return r }},
		{"AnotherTopic", "G", func(r []record) []record { r[7].topic = spareTopic; return r }},
		{"AnotherPartition", "K", func(r []record) []record { r[7].partition = (r[7].partition + 1) % partitions; return r }},
		{"AnotherKey", "K", func(r []record) []record { r[7].key = uuid.NewString(); return r }},
		{"AnObjectsVersionsInverted", "O1", func(r []record) []record { r[4], r[6] = r[6], r[4]; return r }},
		{"ASessionsStepsInverted", "O2", func(r []record) []record { r[4], r[6] = r[6], r[4]; return r }},
		{"ADuplicateWithOtherBytes", "D", func(r []record) []record {
			again := r[3]
			again.value = append(slices.Clone(again.value), ' ')
			return append(r, again)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, judge(truth, c.change(slices.Clone(records))), c.oracle)
		})
	}
}

// TestCountDuplicates: as many as were in flight, and none without a fault.
func TestCountDuplicates(t *testing.T) {
	t.Parallel()
	violations := map[string]string{}
	countDuplicates([]Outcome{{Fault: "none"}, {Fault: "relay-killed", Times: 3, Duplicates: 12, Allowed: 12}}, violations)
	require.Empty(t, violations)
	for _, o := range []Outcome{{Fault: "none", Duplicates: 1}, {Fault: "relay-killed", Times: 3, Duplicates: 13, Allowed: 12}} {
		violations := map[string]string{}
		countDuplicates([]Outcome{o}, violations)
		require.Contains(t, violations, "D")
	}
}

func TestEventText(t *testing.T) {
	t.Parallel()
	// From the TypeID specification's list of valid ids.
	require.Equal(t, "evt_01h455vb4pex5vsknk084sn02q", eventText(uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")))
}
