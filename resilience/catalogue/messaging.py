"""Brokers and task queues: Kafka, AMQP and Celery.

AMQP's 5xx are misuse of the protocol by us, and 320 is a broker that restarts: none of
these numbers is an HTTP status.
"""

from __future__ import annotations

from typing import Any

from resilience.catalogue.conditions import Condition, Field, attribute, flag, says
from resilience.catalogue.evidence import PERMANENT
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTENTION,
    CONTRACT,
    CONTROL,
    DOWNSTREAM,
    INTERNAL,
    INTERRUPTED,
    LOCAL,
    SATURATION,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)


# ------------------------------------------------------------------------------------------------ Kafka
def _put_kafka_name(exc: Any, value: str) -> None:
    from types import SimpleNamespace

    exc.args = (SimpleNamespace(name=lambda: value, fatal=lambda: False, retriable=lambda: False),)


# librdkafka's KafkaError is no exception; it is the first argument of one.
_NAME = Field("error name", lambda exc: exc.args[0].name(), _put_kafka_name)
_FATAL = Condition("it is fatal", lambda exc: exc.args[0].fatal() is True)
# Set by the transactional API only.
_RETRIABLE = Condition("it is retriable", lambda exc: exc.args[0].retriable() is True)

_KAFKA_EXCEPTION = (
    Case("KafkaException", CONTRACT, when=_FATAL),
    Case("KafkaException", TRANSIENT, when=_RETRIABLE),
    Case("KafkaException", TRANSIENT, SATURATION, when=_NAME.among("_QUEUE_FULL")),
    # librdkafka repeats most of these itself until delivery.timeout.ms.
    Case(
        "KafkaException",
        TRANSIENT,
        when=_NAME.among(
            "_TRANSPORT",
            "_ALL_BROKERS_DOWN",
            "_RESOLVE",
            "_RETRY",
            "LEADER_NOT_AVAILABLE",
            "NOT_LEADER_FOR_PARTITION",
            "BROKER_NOT_AVAILABLE",
            "REPLICA_NOT_AVAILABLE",
            "NETWORK_EXCEPTION",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "NOT_CONTROLLER",
            "NOT_ENOUGH_REPLICAS",
            "KAFKA_STORAGE_ERROR",
            "THROTTLING_QUOTA_EXCEEDED",
            "UNKNOWN_TOPIC_OR_PART",
        ),
    ),
    Case(
        "KafkaException",
        TRANSIENT,
        AMBIGUOUS,
        when=_NAME.among(
            "_TIMED_OUT",
            "_MSG_TIMED_OUT",
            "_TIMED_OUT_QUEUE",
            "REQUEST_TIMED_OUT",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        ),
    ),
    # The consumer group moves.
    Case(
        "KafkaException",
        TRANSIENT,
        CONTENTION,
        when=_NAME.among("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"),
    ),
    Case(
        "KafkaException",
        DOWNSTREAM,
        CLIENT_FAULT,
        when=_NAME.among(
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "CLUSTER_AUTHORIZATION_FAILED",
            "SASL_AUTHENTICATION_FAILED",
            "_AUTHENTICATION",
        ),
    ),
    Case("KafkaException", DOWNSTREAM, CONFIG, when=_NAME.among("_SSL")),
    Case(
        "KafkaException",
        VALIDATION,
        when=_NAME.among("MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "TOPIC_EXCEPTION"),
    ),
    # Another producer took over.
    Case(
        "KafkaException",
        CONTRACT,
        when=_NAME.among("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FATAL"),
    ),
    Case("KafkaException", CONTROL, when=_NAME.among("_PARTITION_EOF")),
    # We are closing.
    Case(
        "KafkaException",
        INTERRUPTED,
        LOCAL,
        when=_NAME.among("_DESTROY", "_PURGE_QUEUE", "_PURGE_INFLIGHT"),
    ),
    # _MAX_POLL_EXCEEDED: our handler is too slow.
    Case("KafkaException", INTERNAL, when=_NAME.among("_INVALID_ARG", "_STATE", "_MAX_POLL_EXCEEDED")),
    Case("KafkaException", DOWNSTREAM),
)

_CONFLUENT = (
    *library(
        "cimpl",
        *_KAFKA_EXCEPTION,
        Case("ConcurrentModificationException IllegalStateException", INTERNAL),
        code=_NAME.get,
        has_status=False,
    ),
    *library(
        "confluent_kafka",
        # Its real home is `cimpl`; people write this one.
        *_KAFKA_EXCEPTION,
        # A message that can't be read stays unreadable.
        Case("ValueDeserializationError KeyDeserializationError", DOWNSTREAM),
        Case("ValueSerializationError KeySerializationError SerializationError", VALIDATION),
        Case("ProduceError ConsumeError", TRANSIENT, when=_NAME.missing),
        has_status=False,
    ),
)

_AIOKAFKA = library(
    # kafka-python, which aiokafka comes from, has the same names.
    "aiokafka kafka",
    Case(
        "KafkaConnectionError NodeNotReadyError NoBrokersAvailable LeaderNotAvailableError "
        "NotLeaderForPartitionError GroupCoordinatorNotAvailableError GroupLoadInProgressError "
        "NotCoordinatorForGroupError NotEnoughReplicasError UnknownTopicOrPartitionError KafkaUnavailableError",
        TRANSIENT,
    ),
    Case("TooManyInFlightRequests", TRANSIENT, SATURATION),
    # The connection went away with the request; nobody has cancelled.
    Case("Cancelled QuotaViolationError", TRANSIENT),
    Case("RequestTimedOutError NotEnoughReplicasAfterAppendError KafkaTimeoutError", TRANSIENT, AMBIGUOUS),
    # The library calls these two final.
    Case("BrokerNotAvailableError ReplicaNotAvailableError", TRANSIENT),
    Case(
        "RebalanceInProgressError IllegalGenerationError UnknownMemberIdError CommitFailedError MemberIdRequired "
        "ConcurrentTransactions",
        TRANSIENT,
        CONTENTION,
    ),
    Case(
        "TopicAuthorizationFailedError GroupAuthorizationFailedError ClusterAuthorizationFailedError "
        "SaslAuthenticationFailed AuthenticationFailedError TransactionalIdAuthorizationFailed",
        DOWNSTREAM,
        CLIENT_FAULT,
    ),
    Case("MessageSizeTooLargeError RecordTooLargeError RecordListTooLargeError InvalidTopicError", VALIDATION),
    Case(
        "ProducerFenced InvalidProducerEpoch TransactionCoordinatorFenced",
        CONTRACT,
    ),
    Case("IllegalStateError IllegalArgumentError IllegalOperation", INTERNAL),
    # Stopped while it was fetching; derives from no Kafka error.
    Case("ConsumerStoppedError", INTERRUPTED, LOCAL),
    Case("KafkaConfigurationError", CONTRACT, CONFIG),
    Case("ProducerClosed", INTERNAL),
    Case("KafkaError", TRANSIENT, when=flag("retriable")),
    Case("KafkaError", DOWNSTREAM),
    has_status=False,
)


# kafka-python has renamed its classes from release to release.
_KAFKA_PYTHON = library(
    "kafka",
    Case("MemberIdRequiredError", TRANSIENT, CONTENTION),
    Case(
        "AuthorizationError SaslAuthenticationFailedError TransactionalIdAuthorizationFailedError",
        DOWNSTREAM,
        CLIENT_FAULT,
    ),
    Case("ProducerFencedError InvalidProducerEpochError TransactionCoordinatorFencedError", CONTRACT),
    has_status=False,
)


# ------------------------------------------------------------------------------------------------ AMQP
_REPLY = attribute("reply_code", number=True, shown="reply code")

_AMQP = (
    *library(
        "pika",
        Case("ConnectionClosedByBroker", DOWNSTREAM, CLIENT_FAULT, when=_REPLY.among(403, 530)),
        Case("ConnectionClosedByBroker", INTERNAL, when=_REPLY.within(501, 505)),
        Case("ConnectionClosedByBroker", TRANSIENT),
        Case("ConnectionClosedByClient ChannelClosedByClient", INTERRUPTED, LOCAL),
        Case("ChannelClosedByBroker", DOWNSTREAM, CLIENT_FAULT, when=_REPLY.among(311) | _REPLY.within(403, 406)),
        Case("ChannelClosedByBroker", TRANSIENT),
        # Connection errors by inheritance.
        Case("AuthenticationError ProbableAuthenticationError ProbableAccessDeniedError", DOWNSTREAM, CLIENT_FAULT),
        # Also a broker that goes away during the handshake, as one that restarts.
        Case("IncompatibleProtocolError", TRANSIENT, when=says("StreamLostError")),
        Case("IncompatibleProtocolError", DOWNSTREAM, CONFIG),
        # While it connects.
        Case("AMQPConnectorAborted AMQPConnectionWorkflowAborted", INTERRUPTED, LOCAL),
        Case("AMQPConnectorWrongState AMQPConnectionWorkflowWrongState", INTERNAL),
        Case("AMQPConnectorPhaseErrorBase", TRANSIENT, UNSENT, unwrap="exception"),
        Case("AMQPConnectorException AMQPConnectorStackTimeout", TRANSIENT, UNSENT),
        Case("StreamLostError ConnectionOpenAborted AMQPHeartbeatTimeout", TRANSIENT, AMBIGUOUS),
        # The broker is short of memory or disk.
        Case("ConnectionBlockedTimeout NackError", TRANSIENT),
        Case("NoFreeChannels", TRANSIENT, SATURATION),
        Case("ConnectionWrongStateError ChannelWrongStateError", TRANSIENT, UNSENT),
        Case("UnroutableError", CONTRACT),
        # The queue was deleted or the node moved; nobody here has cancelled.
        Case("ConsumerCancelled AMQPConnectionError", TRANSIENT),
        Case("ReentrancyError InvalidChannelNumber DuplicateConsumerTag ProtocolSyntaxError ChannelError", INTERNAL),
        Case("AMQPChannelError AMQPError", DOWNSTREAM),
        has_status=False,
    ),
    *library(
        # Builtin ConnectionErrors by inheritance, the wrong password too.
        "aiormq",
        Case("AuthenticationError ProbableAuthenticationError", DOWNSTREAM, CLIENT_FAULT),
        Case("IncompatibleProtocolError ConnectionNotAllowed", DOWNSTREAM, CLIENT_FAULT, CONFIG),
        Case(
            "ConnectionSyntaxError ConnectionFrameError ConnectionUnexpectedFrame ConnectionChannelError "
            "ConnectionCommandInvalid ConnectionNotImplemented DuplicateConsumerTag ProtocolSyntaxError",
            INTERNAL,
        ),
        Case("AMQPConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
        Case(
            "ConnectionClosed AMQPConnectionError ConnectionInternalError ConnectionResourceError",
            TRANSIENT,
            AMBIGUOUS,
        ),
        Case(
            "ChannelNotFoundEntity ChannelAccessRefused ChannelPreconditionFailed ChannelLockedResource",
            DOWNSTREAM,
            CLIENT_FAULT,
        ),
        Case("ChannelInvalidStateError", TRANSIENT, UNSENT),
        Case("ChannelClosed DeliveryError", TRANSIENT),
        Case("AMQPError", DOWNSTREAM),
        has_status=False,
    ),
    *library("aio_pika", Case("QueueEmpty", CONTROL), Case("MessageProcessError", INTERNAL)),
    *library(
        # py-amqp says itself what it can recover from.
        "amqp",
        Case("AccessRefused NotFound PreconditionFailed NotAllowed", DOWNSTREAM, CLIENT_FAULT),
        Case("FrameSyntaxError UnexpectedFrame", DOWNSTREAM, CLIENT_FAULT),
        Case("ResourceLocked", TRANSIENT, CONTENTION),
        Case("ResourceError InternalError ConsumerCancelled Blocked MessageNacked", TRANSIENT),
        Case("RecoverableConnectionError RecoverableChannelError", TRANSIENT),
        Case("IrrecoverableConnectionError IrrecoverableChannelError", DOWNSTREAM, CLIENT_FAULT),
        Case("AMQPError", DOWNSTREAM),
        has_status=False,
    ),
    *library(
        "kombu",
        Case("OperationalError", TRANSIENT, chain=True),
        Case("LimitExceeded ConnectionLimitExceeded ChannelLimitExceeded", TRANSIENT, SATURATION, UNSENT),
        Case("EncodeError SerializationError", VALIDATION),
        Case("DecodeError ContentDisallowed", DOWNSTREAM),
        Case("SerializerNotInstalled VersionMismatch", CONTRACT, CONFIG),
        Case("NotBoundError MessageStateError", INTERNAL),
        Case("KombuError", DOWNSTREAM),
        has_status=False,
    ),
)


# ------------------------------------------------------------------------------------------------ Celery
_CELERY = (
    *library(
        "celery",
        Case("Retry Ignore Reject TaskPredicate TaskRevokedError", CONTROL),
        Case("WorkerShutdown WorkerTerminate", INTERRUPTED, LOCAL),
        # `result.get(timeout)`: the task itself goes on.
        Case("TimeoutError BackendGetMetaError BackendStoreError BackendError", TRANSIENT),
        Case("MaxRetriesExceededError ChordError SecurityError TaskError", DOWNSTREAM),
        Case("InvalidTaskError", VALIDATION),
        Case("NotRegistered QueueNotFound ImproperlyConfigured", CONTRACT, CONFIG),
    ),
    *library(
        "billiard",
        # An Exception that is raised anywhere inside the task.
        Case("SoftTimeLimitExceeded Terminated", INTERRUPTED, LOCAL),
        # Seen by whoever waits for the task: its worker was killed.
        Case("TimeLimitExceeded WorkerLostError", TRANSIENT, AMBIGUOUS),
    ),
)

RULES = (*_CONFLUENT, *_AIOKAFKA, *_KAFKA_PYTHON, *_AMQP, *_CELERY)
