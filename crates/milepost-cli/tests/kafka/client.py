"""Another program at the same topics: publishes, reads, and asks how far a group has come.

Usage: client.py publish BROKERS TOPIC     reads lines {"key", "value"} (value in hexadecimal) from its input
       client.py read BROKERS TOPIC        writes a line {"key", "value", "headers"} for each record
       client.py offsets BROKERS TOPIC GROUP    writes [[committed, end], ...], one for each partition
       client.py members BROKERS GROUP     writes {"state", "members": {instance: member}}
"""

import json
import sys

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition


def publish(brokers, topic):
    producer = KafkaProducer(bootstrap_servers=brokers, acks="all", max_block_ms=30_000)
    sent = []
    for line in sys.stdin:
        record = json.loads(line)
        key = record["key"].encode() if record["key"] is not None else None
        sent.append(producer.send(topic, key=key, value=bytes.fromhex(record["value"])))
    for one in sent:
        one.get(timeout=600)
    producer.close()
    print(len(sent))


def reader(brokers, topic, group=None):
    consumer = KafkaConsumer(
        bootstrap_servers=brokers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or [])]
    return consumer, partitions


def read(brokers, topic):
    consumer, partitions = reader(brokers, topic)
    ends = consumer.end_offsets(partitions)
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for records in consumer.poll(timeout_ms=1000).values():
            for record in records:
                text = lambda value: None if value is None else value.decode()
                headers = {name: text(value) for name, value in record.headers}
                print(json.dumps({"key": text(record.key), "value": text(record.value), "headers": headers}))


def offsets(brokers, topic, group):
    consumer, partitions = reader(brokers, topic, group)
    ends = consumer.end_offsets(partitions)
    print(json.dumps([[consumer.committed(partition), ends[partition]] for partition in partitions]))


def members(brokers, group):
    admin = KafkaAdminClient(bootstrap_servers=brokers)
    found = admin.describe_groups([group])[group]
    members = {member["group_instance_id"]: member["member_id"] for member in found["members"]}
    print(json.dumps({"state": found["group_state"], "members": members}))


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    {"publish": publish, "read": read, "offsets": offsets, "members": members}[verb](*arguments)
