// SPDX-License-Identifier: GPL-2.0
/*
 * usage: objects mr DEVICE MIB | objects qp DEVICE COUNT GID_INDEX GID
 *
 * mr: registers so much memory that is there and prints "reg MS" and "dereg MS".
 * qp: makes so many queue pairs with memory and a completion queue each, connects
 *     them to nobody, prints "qp MICROSECONDS" for each, and "ready"; keeps them
 *     until its standard input ends.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TIMES 3

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}

static void regions(struct ibv_pd *pd, size_t size)
{
	double reg = 1e9, dereg = 1e9;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	for (int i = 0; i < TIMES; i++) {
		double began = now(), made;
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, size, IBV_ACCESS_LOCAL_WRITE |
					       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
		if (!mr)
			die("ibv_reg_mr");
		made = now();
		if (ibv_dereg_mr(mr))
			die("ibv_dereg_mr");
		dereg = now() - made < dereg ? now() - made : dereg;
		reg = made - began < reg ? made - began : reg;
	}
	printf("reg %.3f\ndereg %.3f\n", reg * 1e3, dereg * 1e3);
}

static void to_rts(struct ibv_qp *qp, int gid_index, const union ibv_gid *gid)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 0xfffff0,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = *gid, .sgid_index = gid_index, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
				   .rnr_retry = 7, .max_rd_atomic = 1 };

	if (ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS) ||
	    ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
	    ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("ibv_modify_qp");
}

static void queue_pairs(struct ibv_pd *pd, int count, int gid_index, const char *text)
{
	static char memory[4096];
	uint8_t ipv6[16];
	union ibv_gid gid;
	double began;

	if (inet_pton(AF_INET6, text, ipv6) != 1)
		die("the GID");
	memcpy(gid.raw, ipv6, sizeof(gid.raw));
	began = now();
	for (int i = 0; i < count; i++) {
		struct ibv_cq *cq = ibv_create_cq(pd->context, 4, NULL, NULL, 0);
		struct ibv_qp_init_attr attr = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
				 .max_recv_sge = 1 },
		};
		struct ibv_qp *qp = cq ? ibv_create_qp(pd, &attr) : NULL;

		if (!qp || !ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE))
			die("an object");
		to_rts(qp, gid_index, &gid);
	}
	printf("qp %.3f\nready\n", (now() - began) / count * 1e6);
	fflush(stdout);
	while (read(0, memory, sizeof(memory)) > 0)
		;
	/* the kernel takes the rest back */
}

int main(int argc, char **argv)
{
	struct ibv_context *context = argc >= 4 ? open_device(argv[2]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;

	if (!pd)
		die("the device");
	if (!strcmp(argv[1], "mr"))
		regions(pd, (size_t)atoi(argv[3]) << 20);
	else if (!strcmp(argv[1], "qp") && argc == 6)
		queue_pairs(pd, atoi(argv[3]), atoi(argv[4]), argv[5]);
	else
		return 2;
	return 0;
}
