/* Errors of the daos_* functions: they return 0 or one of these numbers with a minus sign. */
#ifndef AZK_DAOS_ERRNO_H
#define AZK_DAOS_ERRNO_H

#ifdef __cplusplus
extern "C" {
#endif

/* Calls ACTION(name, text) for each general error, in the order of their numbers from 1001. */
#define D_FOREACH_GURT_ERR(ACTION)                                          \
	ACTION(DER_NO_PERM, permission denied)                              \
	ACTION(DER_NO_HDL, not an open handle)                              \
	ACTION(DER_INVAL, invalid argument)                                 \
	ACTION(DER_EXIST, exists already)                                   \
	ACTION(DER_NONEXIST, does not exist)                                \
	ACTION(DER_UNREACH, peer cannot be reached)                         \
	ACTION(DER_NOSPACE, no space left)                                  \
	ACTION(DER_ALREADY, done already)                                   \
	ACTION(DER_NOMEM, out of memory)                                    \
	ACTION(DER_NOSYS, not implemented)                                  \
	ACTION(DER_TIMEDOUT, timed out)                                     \
	ACTION(DER_BUSY, in use)                                            \
	ACTION(DER_AGAIN, try again)                                        \
	ACTION(DER_PROTO, protocol versions differ)                         \
	ACTION(DER_UNINIT, not initialized)                                 \
	ACTION(DER_TRUNC, buffer is too small)                              \
	ACTION(DER_OVERFLOW, value does not fit)                            \
	ACTION(DER_CANCELED, cancelled)                                     \
	ACTION(DER_OOG, not a member of the group)                          \
	ACTION(DER_HG, transport failed)                                    \
	ACTION(DER_UNREG, unknown request or protocol version)              \
	ACTION(DER_ADDRSTR_GEN, address cannot be written as text)          \
	ACTION(DER_PMIX, process manager failed)                            \
	ACTION(DER_IVCB_FORWARD, value is elsewhere and must be asked for)  \
	ACTION(DER_MISC, other error)                                       \
	ACTION(DER_BADPATH, bad path)                                       \
	ACTION(DER_NOTDIR, not a directory)                                 \
	ACTION(DER_CORPC_INCOMPLETE, request to a group failed in part)     \
	ACTION(DER_NO_RAS_RANK, no rank listens to events)                  \
	ACTION(DER_NOTATTACH, not attached to a group)                      \
	ACTION(DER_MISMATCH, versions differ)                               \
	ACTION(DER_EXCLUDED, rank is excluded)                              \
	ACTION(DER_NOREPLY, no reply was sent)                              \
	ACTION(DER_DOS, refused to protect the service)                     \
	ACTION(DER_BAD_TARGET, wrong target for this request)               \
	ACTION(DER_GRPVER, group versions differ)                           \
	ACTION(DER_HLC_SYNC, clocks are too far apart)                      \
	ACTION(DER_NO_SHMEM, no shared memory left)                         \
	ACTION(DER_ADD_METRIC_FAILED, metric cannot be added)               \
	ACTION(DER_DURATION_MISMATCH, duration was ended but not begun)     \
	ACTION(DER_OP_NOT_PERMITTED, not possible with this kind of metric) \
	ACTION(DER_EXCEEDS_PATH_LEN, path is too long)                      \
	ACTION(DER_METRIC_NOT_FOUND, no such metric)                        \
	ACTION(DER_SHMEM_PERMS, no permission for the shared memory)        \
	ACTION(DER_HG_FATAL, transport failed for good)                     \
	ACTION(DER_QUOTA_LIMIT, quota is used up)

/* Calls ACTION(name, text) for each storage error, in the order of their numbers from 2001. */
#define D_FOREACH_DAOS_ERR(ACTION)                                           \
	ACTION(DER_IO, input or output error)                                \
	ACTION(DER_FREE_MEM, memory cannot be freed)                         \
	ACTION(DER_ENOENT, no such entry)                                    \
	ACTION(DER_NOTYPE, unknown type of object)                           \
	ACTION(DER_NOSCHEMA, unknown layout of object)                       \
	ACTION(DER_NOLOCAL, object is not here)                              \
	ACTION(DER_STALE, pool map is old)                                   \
	ACTION(DER_NOTLEADER, not the leader of the service)                 \
	ACTION(DER_TGT_CREATE, target cannot be created)                     \
	ACTION(DER_EP_RO, epoch can only be read)                            \
	ACTION(DER_EP_OLD, epoch is gone)                                    \
	ACTION(DER_KEY2BIG, key is too long)                                 \
	ACTION(DER_REC2BIG, value does not fit the buffer)                   \
	ACTION(DER_IO_INVAL, buffers and ranges do not match)                \
	ACTION(DER_EQ_BUSY, event queue is in use)                           \
	ACTION(DER_DOMAIN, failure domains differ)                           \
	ACTION(DER_SHUTDOWN, service is going down)                          \
	ACTION(DER_INPROGRESS, still running)                                \
	ACTION(DER_NOTAPPLICABLE, does not apply)                            \
	ACTION(DER_NOTREPLICA, not a replica of the service)                 \
	ACTION(DER_CSUM, checksum does not match)                            \
	ACTION(DER_DF_INVAL, unknown format on storage)                      \
	ACTION(DER_DF_INCOMPT, other version of the format on storage)       \
	ACTION(DER_REC_SIZE, wrong size of record)                           \
	ACTION(DER_TX_RESTART, transaction must start again)                 \
	ACTION(DER_DATA_LOSS, data are lost)                                 \
	ACTION(DER_OP_CANCELED, operation was cancelled)                     \
	ACTION(DER_TX_BUSY, transaction has not ended)                       \
	ACTION(DER_AGENT_INCOMPAT, agent and library do not fit)             \
	ACTION(DER_NEED_TX, needs a distributed transaction)                 \
	ACTION(DER_RF, more failures than the redundancy factor allows)      \
	ACTION(DER_FETCH_AGAIN, fetch again)                                 \
	ACTION(DER_TX_UNCERTAIN, outcome of the transaction is not known)    \
	ACTION(DER_AGENT_COMM, agent cannot be reached)                      \
	ACTION(DER_ID_MISMATCH, ids differ)                                  \
	ACTION(DER_TGT_RETRY, try another target)                            \
	ACTION(DER_NOTSUPPORTED, not supported)                              \
	ACTION(DER_CONTROL_INCOMPAT, parts of the control plane do not fit)  \
	ACTION(DER_NO_SERVICE, no service)                                   \
	ACTION(DER_TX_ID_REUSED, id of the transaction was used before)      \
	ACTION(DER_UPDATE_AGAIN, update again)                               \
	ACTION(DER_NVME_IO, device failed)                                   \
	ACTION(DER_NO_CERT, certificate cannot be read)                      \
	ACTION(DER_BAD_CERT, certificate is not valid)                       \
	ACTION(DER_VOS_PARTIAL_UPDATE, overlaps an update of the same epoch) \
	ACTION(DER_CHKPT_BUSY, page is being written)                        \
	ACTION(DER_DIV_BY_ZERO, division by zero)                            \
	ACTION(DER_OVERLOAD_RETRY, overloaded and to be tried later)         \
	ACTION(DER_NOT_RESUME, check cannot be resumed)                      \
	ACTION(DER_CONT_NONEXIST, no such container)                         \
	ACTION(DER_CONT_DESTROYING, container is being destroyed)            \
	ACTION(DER_IGNORE, to be ignored)

/* Calls ACTION(block, base) for each block of errors. */
#define D_FOREACH_ERR_RANGE(ACTION) \
	ACTION(GURT, 1000)          \
	ACTION(DAOS, 2000)

#define AZK_ERR_ENUM(name, text) name,

enum daos_errno {
	DER_SUCCESS = 0,
	DER_ERR_GURT_BASE = 1000,
	D_FOREACH_GURT_ERR(AZK_ERR_ENUM)
	DER_ERR_DAOS_BASE = 2000,
	D_FOREACH_DAOS_ERR(AZK_ERR_ENUM)
	DER_LAST_VALID,
	DER_UNKNOWN = DER_ERR_GURT_BASE + 500000
};

/* Name of a negative error, e.g. "DER_NOSPACE" for -1007. Static memory, never NULL. */
const char *d_errstr(int errnum);

/* Description of a negative error. Static memory, never NULL. */
const char *d_errdesc(int errnum);

/* An error for printf: `printf("failed: " DF_RC "\n", DP_RC(rc))`. */
#ifndef DF_RC
#define DF_RC "%s(%d): '%s'"
#define DP_RC(rc) d_errstr(rc), rc, d_errdesc(rc)
#endif

#ifdef __cplusplus
}
#endif

#endif
